"""What the terminal shows while a file is being sent."""

from __future__ import annotations

from typing import Self

from rich import progress as bars
from rich.console import Console

from clients.http.client import GMRClient
from clients.http.errors import ClientError
from clients.http.retry import RetryPolicy
from clients.sending.new_model import state_for_sender
from clients.sending.samples import Totals


class SendingBar:
    """A bar on the terminal; nothing where standard error is no terminal.

    Arguments:
        console: The terminal.
        name: Of the file.
        total: How many samples or labels it has, where that is known.
    """

    def __init__(self, console: Console, name: str, total: int | None) -> None:
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
        self._task = self._bars.add_task(name, total=total, speed="", note="", start=False)
        self._before = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def begin(self, before: int = 0) -> None:
        """Sending begins, or goes on after so many samples."""
        self._before = before
        self._bars.start()
        self._bars.start_task(self._task)
        note = f"resumed after {before}" if before else ""
        self._bars.update(self._task, completed=before, note=note)

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

    def note(self, text: str) -> None:
        """What is waited for."""
        self._bars.update(self._task, note=text)

    def end(self) -> None:
        """Leave the terminal as it is now."""
        self._bars.stop()


def check_reachable(client: GMRClient, *, sends: bool = False) -> None:
    """Fail at once where nothing listens: patience is for services that were there.

    Arguments:
        client: Of the service.
        sends: Whether samples are to be sent, which may make the model.
    """
    with GMRClient(client.url, retry=RetryPolicy(total_s=0)) as impatient:
        if sends:
            state_for_sender(impatient)
        else:
            impatient.ingest_state()
