"""`gmr evaluate`: continual learning through a live service, measured from outside.

The sub-tasks of a data set are streamed through POST /ingest, in order and batch
by batch; after each, once all of it is learned, the service is asked about the
whole joint test set through POST /classify. Rules:

* the service is told no sub-task, no boundary and no test label;
* everything measured comes over HTTP, so a remote service is measured the same way;
* a run is a function of data, protocol and seed: run again, it sends the same
  batches in the same order;
* positions are those of the batches this run sent, found by their entry ids, so a
  shared or used stream does not shift them.
"""

from __future__ import annotations

import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from clients.commands.assignments import assignments
from clients.commands.options import (
    DecimalSign,
    DroppedColumns,
    EncodingFile,
    FeatureColumns,
    SkipBadRows,
)
from clients.data.datasets import load_dataset
from clients.data.encoding import TableEncoding
from clients.data.formats.rows import column_names
from clients.data.table_reading import TableReading
from clients.data.tasks import HOW_TO_QUOTE, PAPER_SLTS, SLT
from clients.evaluation import environment
from clients.evaluation.listener import ProgressListener
from clients.evaluation.local import LocalService
from clients.evaluation.plan import Plan
from clients.evaluation.results import Data, Evaluation, Run
from clients.evaluation.results import Protocol as StreamProtocol
from clients.evaluation.run import Drawn, EvaluationRun
from clients.http.client import GMRClient
from clients.http.errors import InputError


def evaluate(plan: Plan, listener: ProgressListener, command: str) -> tuple[Evaluation, Drawn]:
    """Run the plan, once per seed.

    Arguments:
        plan: What to do.
        listener: Is told how it goes.
        command: The command line, for the report.

    Returns:
        What was measured, and samples per class drawn after the first seed.

    Raises:
        InputError: the plan cannot be carried out.
        ClientError: the service failed, or could not be reached.
    """
    plan.check()
    begun, start = datetime.now(UTC), time.perf_counter()
    slt = SLT.parse(plan.slt)
    dataset = load_dataset(plan.source, plan.reading).with_test_set()
    slt.check(dataset.train_y)
    slt.check(dataset.test_y)
    for remark in dataset.remarks:
        listener.warned(remark)

    runs: list[Run] = []
    drawn: Drawn = {}
    warm = False
    for seed in plan.seeds:
        if plan.url is not None:
            with GMRClient(plan.url) as client:
                warm = _check_fresh(client, plan)
                run, samples = EvaluationRun(client, plan, slt, dataset, seed, listener).run()
        else:
            listener.starting(seed)
            settings = {"seed": seed, **plan.settings}
            with LocalService(settings=settings) as service, GMRClient(service.url) as client:
                run, samples = EvaluationRun(client, plan, slt, dataset, seed, listener).run()
        runs.append(run)
        drawn = drawn or samples

    described: dict[str, Any] = {"url": plan.url or "private"}
    if warm:
        described["warm"] = True
    return Evaluation(
        created=begun.isoformat(timespec="seconds"),
        command=command,
        duration_seconds=time.perf_counter() - start,
        data=Data(
            source=plan.source,
            name=dataset.name,
            train_samples=sum(runs[0].history.samples) // plan.epochs,
            test_samples=len(slt.rows(dataset.test_y)),
            features=dataset.n_features,
            image_shape=dataset.image_shape,
            classes=slt.classes,
        ),
        protocol=StreamProtocol(
            slt=slt.name,
            sub_tasks=slt.sub_tasks,
            batch_size=plan.batch_size,
            epochs=plan.epochs,
            labelled=plan.labelled,
            limit=plan.limit,
            tolerance_samples=plan.tolerance_samples,
            seeds=plan.seeds,
            service={**described, **plan.settings},
        ),
        versions=environment.versions(),
        hardware=environment.hardware(),
        runs=tuple(runs),
    ), drawn


def _check_fresh(client: GMRClient, plan: Plan) -> bool:
    """Whether the service has learned before; raises where that was not allowed."""
    info = client.model()
    warm = info.samples_seen > 0 or info.backlog > 0
    if warm and not plan.allow_warm:
        raise InputError(
            f"The service at {plan.url} has learned {info.samples_seen:,} samples already "
            f"({info.backlog} entries more are waiting); an evaluation needs a fresh model. Start "
            f"one with an empty data directory, leave --url out for a private service, or pass "
            f"--allow-warm to go on all the same.",
            samples_seen=info.samples_seen,
        )
    return warm


def evaluate_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="digits, mnist, fashion_mnist, devanagari, a labelled file such as an .npz, or "
            "a folder of images, such as photos/, with a folder in it for each class.",
        ),
    ],
    slt: Annotated[
        str,
        typer.Option(
            "--slt",
            help=f"Sub-tasks: one of {', '.join(PAPER_SLTS)}, or written out, as 0,1/2,3/4. "
            f"{HOW_TO_QUOTE}",
        ),
    ] = "D2-2-2-2-2a",
    label_column: Annotated[
        str | None,
        typer.Option(
            help="Of a table: the class, by name or index.", show_default="the last column"
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Of a table: ids, which are no feature, likewise.")
    ] = None,
    columns: FeatureColumns = None,
    drop: DroppedColumns = None,
    encoding: EncodingFile = None,
    decimal: DecimalSign = ".",
    skip_bad_rows: SkipBadRows = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per request.")] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over each sub-task.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the order, and of a private model.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs with consecutive seeds, the first being --seed.")
    ] = 1,
    labelled: Annotated[
        float, typer.Option(min=0, max=1, help="Share of training samples sent with a label.")
    ] = 1.0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Training samples per sub-task, at most.")
    ] = None,
    tolerance: Annotated[
        int, typer.Option(min=1, help="Samples after a change within which it counts as found.")
    ] = 2000,
    url: Annotated[
        str | None,
        typer.Option(help="A running service with a fresh model; without it, a private one."),
    ] = None,
    allow_warm: Annotated[
        bool, typer.Option("--allow-warm", help="Go on though the service has learned before.")
    ] = False,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Let a fresh model learn each sub-task, too: forward transfer.",
        ),
    ] = False,
    preset: Annotated[
        str | None, typer.Option(help="Of the private service: mfa, flat, paper or dcgmm.")
    ] = None,
    components: Annotated[
        int | None, typer.Option(min=1, help="Of the private service's mixture.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the private service."),
    ] = None,
    report: Annotated[
        Path, typer.Option(help="Folder for report.html, .md and .json, CSV and the figures.")
    ] = Path("report"),
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="REPORT",
            help="report.json of an earlier evaluation, or its folder, to set beside this one; "
            "may be given several times.",
        ),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Write runs to this MLflow server or store, too; extra mlflow."
        ),
    ] = None,
) -> None:
    """Measure continual learning on SOURCE through a live service.

    Streams the sub-tasks through POST /ingest without saying where one ends, tests through
    POST /classify after each, and writes a report.

    Example: gmr evaluate mnist --slt D5-5a --seeds 3 --report report/mnist

    Example: gmr evaluate pumps.csv --slt ok/worn --label-column state --encoding pumps.json

    A table is read as gmr ingest reads it; its last column is the class where no other is named.
    """
    # Imported here: drawing takes a second to import, and --help should not.
    from clients.evaluation.mlflow_run import check_installed, log_evaluation
    from clients.evaluation.progress import Bars, print_results
    from clients.evaluation.recorded import read_all
    from clients.evaluation.report import write_report

    # Before the run: a report that cannot be read should not cost one.
    compared = read_all(compare or [])
    if mlflow is not None:
        check_installed()
    plan = Plan(
        source=source,
        slt=slt,
        batch_size=batch_size,
        epochs=epochs,
        seeds=tuple(range(seed, seed + seeds)),
        labelled=labelled,
        limit=limit,
        tolerance_samples=tolerance,
        url=url,
        allow_warm=allow_warm,
        reference=reference,
        settings=_settings(preset, components, setting or []),
        reading=TableReading(
            label_column=label_column,
            id_column=id_column,
            columns=None if columns is None else tuple(column_names(columns) or ()),
            drop=tuple(column_names(drop) or ()),
            encoding=None if encoding is None else TableEncoding.read(encoding),
            decimal=decimal,
            skip_bad_rows=skip_bad_rows,
        ),
    )
    console = Console()
    with Bars(console, n_seeds=seeds) as bars:
        evaluation, drawn = evaluate(plan, bars, shlex.join(["gmr", *sys.argv[1:]]))
    written = write_report(evaluation, drawn, report, compared)
    print_results(evaluation, written, console)
    if mlflow is not None:
        run_id = log_evaluation(evaluation, written, mlflow)
        console.print(f"mlflow   run {run_id}", highlight=False)


def _settings(preset: str | None, components: int | None, chosen: list[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    if preset is not None:
        settings["preset"] = preset
    if components is not None:
        settings["n_components"] = components
    return settings | assignments(chosen)
