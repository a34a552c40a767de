"""`gmr status`: how the service is, once."""

from __future__ import annotations

import time
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.commands.reading import (
    Reading,
    accuracy_of,
    coarse_of,
    features_of,
    gate_of,
    labels_of,
    phase_of,
    share,
)
from clients.http.client import GMRClient
from clients.http.retry import RetryPolicy
from core.counted import counted

_PATIENCE_S = 1.0

FATES = (
    *("waiting", "learned", "set_aside", "awaiting", "unknown"),
    *("quarantined", "passed", "rejected", "dropped", "lost"),
)
"""What becomes of samples, as GET /ledger names it."""


def status_command(
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Print how a service is: model, phase, backlog, accuracy, last boundaries, trainer.

    Example: gmr status

    Example: gmr status --json

    Ends with status 1 where the service is not ready, or does not answer.
    """
    # Whoever asks how it is wants to know it, not to wait until it is better.
    with GMRClient(url, retry=RetryPolicy(total_s=_PATIENCE_S)) as client:
        document = Reading.of(client).document()
    if as_json:
        print_json(document)
    else:
        console = Console()
        console.print(_facts(document))
        if document["boundaries"]:
            console.print(_boundaries(document["boundaries"]))
        if len(document["detectors"] or ()) > 1:
            console.print(_detectors(document["detectors"]))
    if not document["ready"]:
        raise typer.Exit(1)


def _facts(document: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")

    def row(name: str, text: str, style: str = "") -> None:
        table.add_row(name, Text(text, style=style))

    row("service", document["url"])
    if not document["ready"]:
        row("ready", f"no: {document['reason']}", "bold red")
        return table
    row("ready", "yes", "green")
    row(
        "model",
        f"version {document['model_version']}, preset {document['preset']}, "
        f"{counted(document['components'], 'component')}, "
        f"{counted(document['classes'], 'class', 'classes')}, "
        f"{counted(document['features'] or 0, 'feature')}",
    )
    row(
        "learned", f"{counted(document['samples_seen'], 'sample')}, sub-task {document['sub_task']}"
    )
    row("phase", phase_of(document), "bold yellow" if document["phase"] == "warning" else "")
    if (held := gate_of(document)) is not None:
        row("gate", f"{held} (gmr release)", "bold yellow")
    row("backlog", counted(document["backlog"], "entry", "entries"))
    if document["checkpoint_error"] is not None:
        row("checkpoint", document["checkpoint_error"].removeprefix("checkpoint "), "bold red")
    if document["archive_error"] is not None:
        row("archive", document["archive_error"].removeprefix("archive "), "bold red")
    row("accuracy", accuracy_of(document))
    row(
        "inlier rate",
        f"{share(document['inlier_rate'])} (usual: {share(document['inlier_rate_mean'])})",
    )
    if (features := features_of(document)) is not None:
        row("features", features, "yellow" if document["feature_drift"]["drifting"] else "")
    if (coarse := coarse_of(document)) is not None:
        row("precision", coarse, "bold yellow")
    if (labels := labels_of(document)) is not None:
        row("labels", labels, "yellow" if (document["labels_unmatched"] or {}).get("late") else "")
    if document["proposals"]:
        told = counted(document["proposals"], "new class is", "new classes are")
        row("proposals", f"{told} proposed (gmr proposals)", "yellow")
    if document["dead_letters"]:
        told = counted(document["dead_letters"], "entry", "entries")
        row("dead letters", f"{told} that could not be used (gmr deadletters list)", "yellow")
    row("ledger", _ledger(document["ledger"]))
    reported = document["trainer_reported"]
    # By the clock of this machine, which may not be the service's.
    age = "-" if reported is None else f"{max(0.0, time.time() - reported):.0f} s ago"
    quiet = ""
    if document["loaded"] is False:
        quiet = ", has let the quiet model go until a batch comes"
        if document["backlog"]:
            quiet = ", has not come to this model yet, for which batches wait"
        elif not document["stream_samples"]:
            quiet = ", waits for the model's first samples (gmr ingest FILE)"
    row("trainer", f"reported {age}{quiet}")
    return table


def _ledger(counts: dict[str, Any] | None) -> str:
    """What became of samples, in words: what is 0 is left out.

    Example:
        >>> _ledger({"accepted": 30, "waiting": 10, "learned": 20, "rejected": 0})
        '30 samples accepted = 10 waiting + 20 learned'
        >>> _ledger({"accepted": None, "waiting": None, "learned": 20, "rejected": 0})
        '20 learned; how many were accepted in all is not known'
    """
    if counts is None:
        return "-"
    fates = [name for name in FATES if counts.get(name)]
    parts = " + ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in fates)
    if counts["accepted"] is None:
        return f"{parts or 'none told'}; how many were accepted in all is not known"
    wrong = counts.get("unaccounted")
    return f"{counted(counts['accepted'], 'sample')} accepted = {parts or 'none'}" + (
        f"; {wrong:,} UNACCOUNTED FOR" if wrong else ""
    )


def _detectors(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("detector", "now", "boundaries", "matched", "missed", "extra", "median delay"):
        table.add_column(name, overflow="fold")
    for one in rows:
        delay, ratio = one["delay_samples_median"], one["ratio"]
        table.add_row(
            f"{one['detector']} {'decides' if one['decides'] else '(shadow)'}",
            "-" if ratio is None else f"{ratio:.2f} of 1",
            str(one["boundaries"]),
            str(one["matched"]),
            str(one["missed"]),
            str(one["extra"]),
            "-" if delay is None else f"{delay:,.0f} samples",
        )
    return table


def _boundaries(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("boundary", "when", "sample", "sub-task", "signal", "severity", "return of"):
        # Half a word says nothing: in 80 columns they all stay whole.
        table.add_column(name, overflow="fold", no_wrap=name != "boundary")
    for one in reversed(rows):
        table.add_row(
            f"{one['boundary']}{' (dropped)' if one['dropped'] else ''}",
            time.strftime("%d %b %H:%M", time.localtime(one["time"])),
            f"{one['sample']:,}",
            str(one["sub_task"]),
            one["signal"] or one["detector"],
            "-" if one["severity"] is None else f"{one['severity']:.2f}",
            "" if one["recurrence_of"] is None else str(one["recurrence_of"]),
        )
    return table
