"""What stands against the replacement of a named model's state by a copy, and what goes along."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from clients.http.answers import Ledger, NamedModelSummary, Setting
from clients.http.errors import HasLearned, InputError
from core.counted import counted


def check_another(source: str | None, name: str) -> None:
    """Raise `InputError` where a model would be copied to itself, which restarts its detector."""
    if source == name:
        raise InputError(
            f"The model {name} is to be a copy of itself, by which its detector would begin anew. "
            f"Expected the name of another model. Choose another name.",
            model=name,
        )


def check_empty(summary: NamedModelSummary, ledger: Ledger) -> None:
    """Raise `HasLearned` where a model has learned, or accepted, anything.

    Arguments:
        summary: GET /models/{name}. It alone knows of what came by a checkpoint.
        ledger: GET /ledger of the model. It alone knows of samples that are held and not learned.
    """
    accepted = ledger.accepted or 0
    if not (accepted or summary.model_version or summary.samples_seen or summary.backlog):
        return
    holds = (
        f"has learned {counted(summary.samples_seen, 'sample')}"
        if summary.samples_seen
        else f"has accepted {counted(accepted, 'sample')}"
    )
    raise HasLearned(
        f"The model {summary.name} is there and {holds}, which a copy would replace. Expected a "
        f"name of no model, or of one that is empty. Choose another name, or say that its state "
        f"is to be replaced: replace=True, or --yes of `gmr models copy`.",
        model=summary.name,
        samples_seen=summary.samples_seen,
        accepted=accepted,
    )


def taken_along(
    of_source: Mapping[str, Setting], otherwise: Collection[str]
) -> dict[str, float | int | None]:
    """What was asked for while the source ran, but for settings that the copy has otherwise.

    Example:
        >>> of_source = {"outlier_c": Setting(3.0, True), "max_classes": Setting(1000, False)}
        >>> taken_along(of_source, ())
        {'outlier_c': 3.0}
    """
    return {
        name: setting.value
        for name, setting in of_source.items()
        if setting.asked and name not in otherwise
    }
