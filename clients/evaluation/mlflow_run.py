"""An evaluation as runs of MLflow: a parent with the means, a child per seed, the report's files.

MLflow is imported when it is asked for, and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from clients.evaluation.report import Report
from clients.evaluation.results import Evaluation, Run
from clients.extras import MissingExtra
from clients.http.errors import ClientError

EXPERIMENT = "gmr evaluate"
LONGEST_PARAMETER = 500
"""Characters; MLflow takes some thousand, a table of runs shows fewer."""


def check_installed() -> None:
    """Raise `MissingExtra` where MLflow is not installed; nothing is imported."""
    if find_spec("mlflow") is None:
        raise MissingExtra.of("gmr evaluate --mlflow", "mlflow", "mlflow")


def log_evaluation(evaluation: Evaluation, report: Report, uri: str) -> str:
    """Write an evaluation to a tracking server or store.

    Arguments:
        evaluation: Whose protocol becomes parameters, and whose scores become metrics.
        report: Whose files become artefacts of the parent.
        uri: Of the server or store, as MLflow takes it.

    Returns:
        The id of the parent run.

    Raises:
        ClientError: It cannot be written.
    """
    import mlflow

    with _naming(uri):
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(EXPERIMENT)
        name = f"{evaluation.data.name}, {evaluation.protocol.slt}"
        with mlflow.start_run(run_name=name[:LONGEST_PARAMETER]) as parent:
            mlflow.log_params(parameters(evaluation))
            mlflow.set_tags({f"version.{key}": v for key, v in evaluation.versions.items()})
            mlflow.set_tag("command", evaluation.command)
            for score, spread in evaluation.summary().items():
                _log({score: spread.mean, f"{score}.std": spread.std})
            for path in report.files:
                mlflow.log_artifact(str(path))
            for run in evaluation.runs:
                with mlflow.start_run(run_name=f"seed {run.seed}", nested=True):
                    mlflow.log_param("seed", run.seed)
                    _log_run(run)
            return str(parent.info.run_id)


def parameters(evaluation: Evaluation) -> dict[str, str]:
    """What was asked for, by the names of the command's options where it has them."""
    protocol = evaluation.protocol
    told: dict[str, Any] = {
        "data": evaluation.data.name,
        "slt": protocol.slt,
        "batch_size": protocol.batch_size,
        "epochs": protocol.epochs,
        "labelled": protocol.labelled,
        "limit": protocol.limit,
        "seeds": ",".join(map(str, protocol.seeds)),
        **{f"service.{key}": value for key, value in protocol.service.items()},
    }
    return {key: str(value)[:LONGEST_PARAMETER] for key, value in told.items()}


def _log_run(run: Run) -> None:
    """A seed's scores, and its accuracy after every sub-task."""
    _log(run.scores())
    for milestone in run.milestones:
        after = {
            "accuracy_seen": milestone.accuracy_seen,
            "accuracy_joint": milestone.accuracy_joint,
        }
        _log(after, milestone.sub_task)


def _log(scores: Mapping[str, float], step: int | None = None) -> None:
    """Metrics; those that do not apply are left out, because MLflow would draw NaN as a number."""
    import mlflow

    known = {name: value for name, value in scores.items() if math.isfinite(value)}
    mlflow.log_metrics(known, step=step)


@contextmanager
def _naming(uri: str) -> Iterator[None]:
    """Turn what goes wrong at MLflow into one message: the report is written already."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:
        raise ClientError(
            f"The evaluation could not be written to MLflow at {uri}: {error} Its report is "
            f"complete all the same. Check the address, and log report.json by hand."
        ) from error
