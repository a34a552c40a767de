"""`gmr ingest`: a file into a running service, with progress, and resumed when interrupted."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Self

import typer
from rich import progress as bars
from rich.console import Console

from clients.client import GMRClient
from clients.connection import open_sender
from clients.errors import ClientError
from clients.resume import Progress, ResumeFile, fingerprint, state_folder
from clients.retry import RetryPolicy
from clients.sending import Job, Totals, send, starting_point

# A full backlog is normal while the model learns, so wait for long; the display says why.
_PATIENCE_S = 600.0
_LEARNING_S = 24 * 3600.0


def ingest_command(
    file: Annotated[Path, typer.Argument(help="An .npz, .npy, .csv, .tsv, .parquet or IDX file.")],
    url: Annotated[
        str | None,
        typer.Option(help="Where the service listens.", envvar="GMR_URL", show_default=False),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per batch.")] = 100,
    label_column: Annotated[
        str | None,
        typer.Option(help="Labels: a column's name or index, or an array of an .npz."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels: a file of their own (.npy, .npz or IDX).")
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Send the samples without their labels.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Samples per second, at most.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the file.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Send a file from its start that was sent before.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all of it has been learned.")
    ] = False,
) -> None:
    """Stream a file into a running service, in order, batch by batch.

    Interrupted, it goes on where it was when the same command is run again; no batch is
    learned twice.

    Example: gmr ingest train.csv --label-column class --batch-size 100
    """
    console = Console(stderr=True)
    job = Job.of(
        file,
        batch_size=batch_size,
        epochs=epochs,
        label_column=label_column,
        labels=labels,
        with_labels=not no_labels,
    )
    with GMRClient(url) as client, _Display(console, job) as display:
        _check_reachable(client)
        resume = ResumeFile(
            state_folder() / f"{job.name}-{fingerprint([], client.url)}.json",
            {"file": str(file.resolve()), "url": client.url},
        )
        progress = starting_point(client, resume, again=again)
        if progress.finished and progress.epoch + 1 >= epochs:
            console.print(
                f"{file} was sent completely before: {progress.samples} samples on "
                f"{time.strftime('%d %B %Y at %H:%M', time.localtime(progress.time))}. "
                f"Use --again to send it once more."
            )
            return
        display.begin(progress)
        policy = RetryPolicy(total_s=_PATIENCE_S, notify=display.waiting)
        try:
            with closing(open_sender(url, policy)) as sender:
                totals = send(sender, job, resume, progress, rate=rate, watcher=display)
            waited = None
            if wait:
                display.learning()
                began = time.monotonic()
                client.wait_until_learned(_LEARNING_S)
                waited = time.monotonic() - began
        except KeyboardInterrupt:
            display.end()
            console.print(
                "Interrupted. Run the same command again to go on from here; nothing will be "
                "learned twice."
            )
            raise typer.Exit(130) from None
    typer.echo(_summary(totals, waited))


def _summary(totals: Totals, learned_after: float | None) -> str:
    text = (
        f"{totals.samples} samples in {totals.batches} batches, {totals.duplicate_samples} of them "
        f"there before, in {totals.seconds:.1f} s ({totals.samples_per_second:,.0f} samples/s); "
    )
    if learned_after is None:
        return text + f"backlog {totals.backlog} entries"
    rate = totals.samples / (totals.seconds + learned_after)
    return text + f"all learned {learned_after:.1f} s later ({rate:,.0f} samples/s end to end)"


def _check_reachable(client: GMRClient) -> None:
    """Fail at once where nothing listens: patience is for services that were there."""
    with GMRClient(client.url, retry=RetryPolicy(total_s=0)) as impatient:
        impatient.model()


class _Display:
    """Progress on the terminal; nothing where standard error is no terminal."""

    def __init__(self, console: Console, job: Job) -> None:
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[speed]}"),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[note]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        name, total = job.source.path.name, job.n_samples
        self._task = self._bars.add_task(name, total=total, speed="", note="", start=False)
        self._before = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def begin(self, progress: Progress) -> None:
        """Sending begins, or goes on."""
        self._before = progress.samples
        self._bars.start()
        self._bars.start_task(self._task)
        note = f"resumed after {progress.samples}" if progress.samples else ""
        self._bars.update(self._task, completed=progress.samples, note=note)

    def sent(self, totals: Totals) -> None:
        """A batch was acknowledged."""
        self._bars.update(
            self._task,
            completed=self._before + totals.samples,
            speed=f"{totals.samples_per_second:,.0f}/s",
            note=f"backlog {totals.backlog}",
        )

    def waiting(self, error: ClientError, seconds: float) -> None:
        """The service could not take a batch; it will be sent again."""
        self._bars.update(self._task, note=f"waiting {seconds:.1f} s: {error}")

    def learning(self) -> None:
        """Everything is sent."""
        self._bars.update(self._task, note="sent; waiting until all is learned")

    def end(self) -> None:
        """Leave the terminal as it is now."""
        self._bars.stop()
