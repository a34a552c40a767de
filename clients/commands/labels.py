"""`gmr labels`: labels for samples that were sent without, from a file."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clients.commands.file_sender import say_error
from clients.commands.named_parts import (
    check_no_model,
    missing_models,
    no_such_models,
    of_whole,
    some_failed,
)
from clients.commands.options import Every, Live, ModelColumn, Url
from clients.data.label_file import LabelFile
from clients.data.live import input_of
from clients.data.live_labels import LiveLabels
from clients.data.parts import Parts, parts_of
from clients.data.standard_input import STANDARD_INPUT
from clients.http.address import address
from clients.http.client import GMRClient
from clients.http.connection import open_sender
from clients.http.errors import ClientError, InputError
from clients.http.rejected import BatchesRejected
from clients.http.retry import RetryPolicy
from clients.sending.bar import SendingBar, check_reachable
from clients.sending.label_outcome import Outcome, follow
from clients.sending.labels import LabelJob, LabelTotals, send_labels
from clients.sending.permission import Verdicts, check_may_read
from core.counted import counted

# As for `gmr ingest`: a full backlog, or a trainer that has much to learn first, is normal.
_PATIENCE_S = 600.0

_THE_REST = "; run the same command again for the rest. No label is matched twice"


_DUPLICATE = "duplicate"
"""Of labels whose sample has one already."""


class LabelsRefused(ClientError):
    """Labels were accepted, and could not be used when their turn came."""


def labels_command(
    file: Annotated[
        Path,
        typer.Argument(help="A .csv, .tsv, .jsonl, .parquet or .npz file; - is standard input."),
    ],
    url: Url = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            help="Ids: a column's name or index, or an array of an .npz.",
            show_default="id, sample_id, ids or sample_ids",
        ),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Labels, likewise.", show_default="label or labels")
    ] = None,
    model_column: ModelColumn = None,
    text_ids: Annotated[
        bool, typer.Option("--text-ids", help="Ids are text, also those that look like numbers.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Labels per request, at most.")] = 1000,
    again: Annotated[
        bool, typer.Option("--again", help="Send a file once more that was sent before.")
    ] = False,
    live: Live = False,
    every: Every = 1.0,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait to hear what became of them.")
    ] = True,
) -> None:
    """Send labels for samples that were sent with ids and without labels.

    In any order, and before the samples if it must be. Interrupted, run the same command again;
    no label is matched twice. Says at the end how many labels met their sample, wait for theirs,
    or were unmatched and why.

    Example: gmr labels verdicts.csv --id-column id --label-column verdict

    Example: tail -n +1 -F verdicts.csv | gmr labels - --live

    Example: gmr labels fleet-verdicts.csv --model-column machine

    With --model-column the labels of a table go to the named models (`gmr models`) that the column
    says, model after model.
    """
    if model_column is not None:
        check_no_model(url, model_column)
        if live:
            raise InputError(
                "Lines that come one by one are not parted by --model-column. Send those of each "
                "model by a command of its own with --model, or leave out --live."
            )
    with input_of(file, live=live, wait_s=every, most=batch_size) as (path, coming):
        job_of = partial(
            LabelJob.of,
            batch_size=batch_size,
            id_column=id_column,
            label_column=label_column,
            text_ids=text_ids,
            run=secrets.token_hex(4) if again else "0",
        )
        name = "standard input" if file == STANDARD_INPUT else file.name
        verdicts = Verdicts()
        if model_column is None:
            _send(job_of(path, live=coming), name, url, verdicts, wait=wait)
            return
        with tempfile.TemporaryDirectory(prefix="gmr-parts-") as folder:
            parts = parts_of(
                path, model_column, Path(folder), text_columns=(id_column, label_column)
            )
            # Columns that are not there are told once, and not of each model.
            LabelFile(path, id_column, label_column, ids_once=False)
            _send_parts(parts, job_of, name, url, verdicts, wait=wait)


def _send_parts(
    parts: Parts,
    job_of: Callable[[Path], LabelJob],
    name: str,
    url: str | None,
    verdicts: Verdicts,
    *,
    wait: bool,
) -> None:
    """Send the labels of each model, and go on after those that cannot be used.

    Arguments:
        parts: The rows of each model.
        job_of: Makes the job of sending a part.
        name, url, verdicts, wait: As of `_send`.
    """
    with GMRClient(url) as client:
        if missing := missing_models(client, [part.model for part in parts.each]):
            remedy = "Send their samples first, with gmr ingest --model-column."
            raise no_such_models(name, missing, remedy)
    failed = 0
    for part in parts.each:
        try:
            try:
                job, of_model = job_of(part.path), address(url, part.model)
                _send(job, name, of_model, verdicts, wait=wait, whose=f"{part.model}: ")
            except InputError as error:
                raise of_whole(error, part, parts, name) from error
        except (InputError, BatchesRejected, LabelsRefused) as error:
            failed += 1
            say_error(Console(stderr=True), error)
    if failed:
        raise some_failed(failed, name)


def _send(
    job: LabelJob,
    name: str,
    url: str | None,
    verdicts: Verdicts,
    *,
    wait: bool,
    whose: str = "",
) -> None:
    """Send all labels, and say what became of them.

    Arguments:
        job: Them.
        name: What they come from, for the person who sends them.
        url: Where the service listens.
        verdicts: Looks what became of what was sent.
        wait: Whether to wait for what becomes of them.
        whose: Begins what is told of them.
    """
    console = Console(stderr=True)
    outcome = Outcome()
    with GMRClient(url) as client, SendingBar(console, name, job.file.n_rows) as display:
        check_reachable(client)
        if wait:
            check_may_read(client, "To hear what became of labels", "Or send them with --no-wait.")
        display.begin()
        policy = RetryPolicy(total_s=_PATIENCE_S, notify=display.waiting)
        follower = partial(_follow, client.url, policy, display) if wait else None
        try:
            with closing(open_sender(url, policy)) as sender:
                totals = send_labels(sender, job, outcome, follower=follower, listener=display)
        except KeyboardInterrupt:
            display.end()
            rest = "" if isinstance(job.file, LiveLabels) else _THE_REST
            console.print(f"Interrupted. What was acknowledged is durable{rest}.")
            raise typer.Exit(130) from None
        display.end()
        typer.echo(whose + _summary(totals))
        if wait:
            typer.echo(whose + _verdict(outcome))
            if hint := _hint(outcome):
                typer.echo(whose + hint, err=True)
        if totals.duplicate_samples == totals.samples:
            typer.echo(
                "All of them were sent before. Use --again to send them once more.", err=True
            )
        verdicts.check(client, f"{job.name}-", "labels", console)
        if outcome.refused:  # and their dead letters are gone by now
            raise LabelsRefused(
                f"{outcome.refused} labels were refused when their turn came: {outcome.reason} "
                f"Correct them and send the file again."
            )


def _follow(url: str, policy: RetryPolicy, display: SendingBar, outcome: Outcome) -> None:
    display.note("sent; waiting until they are matched")
    follow(url, outcome, policy, _PATIENCE_S)


def _summary(totals: LabelTotals) -> str:
    text = (
        f"{counted(totals.samples, 'label')} in {counted(totals.batches, 'request')}, "
        f"{totals.duplicate_samples} of them there before, in {totals.seconds:.1f} s "
        f"({totals.samples_per_second:,.0f} labels/s)"
    )
    if totals.left_out:
        text += f"; {counted(totals.left_out, 'row')} without a label left out"
    return f"{text}; backlog {counted(totals.backlog, 'entry', 'entries')}"


def _hint(outcome: Outcome) -> str | None:
    """What may be wrong where no label has met a sample, and none is of one that had its own.

    Example:
        >>> _hint(Outcome(waiting=38, awaiting=5))
        "No label met a sample: those that wait have other ids. The id 3 is not the text '3' (see \
--text-ids); look at --id-column, or wait for the samples."
        >>> _hint(Outcome(waiting=38, awaiting=0))
        'No label met a sample: none waits for one. Samples need ids (gmr ingest --id-column).'
        >>> _hint(Outcome(matched=1, waiting=37, awaiting=5))
    """
    if outcome.matched or outcome.unmatched[_DUPLICATE] or not outcome.waiting:
        return None
    if outcome.awaiting is None:
        return None
    if not outcome.awaiting:
        return (
            "No label met a sample: none waits for one. Samples need ids (gmr ingest --id-column)."
        )
    return (
        "No label met a sample: those that wait have other ids. The id 3 is not the text '3' (see "
        "--text-ids); look at --id-column, or wait for the samples."
    )


def _verdict(outcome: Outcome) -> str:
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(outcome.unmatched.items()) if n)
    text = (
        f"{outcome.matched} matched, {outcome.waiting} waiting for their sample, "
        f"{outcome.unmatched.total()} unmatched" + (f" ({reasons})" if reasons else "")
    )
    if outcome.untold:
        text += f", {outcome.untold} of which the service tells nothing (any more)"
    if outcome.accuracy is not None:
        text += f"; prequential accuracy {100 * outcome.accuracy:.1f} % (running mean)"
    if outcome.awaiting is not None:
        text += f"; without a label still: {counted(outcome.awaiting, 'sample')}"
    return text
