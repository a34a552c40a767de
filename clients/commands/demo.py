"""`gmr demo`: the whole product in a minute, on real digits and a real service.

Starts a private service, streams handwritten digits as sub-tasks that nobody
announces, and tells what happens as the service reports it over HTTP: boundaries,
replay, accuracy, drawn samples. Rules:

* nothing is staged: what is shown comes from the service, and what it misses or
  makes up is shown as well;
* the demo's data directory is its own: it is emptied at the start, so the demo may
  be typed twice, and a directory that a demo did not make is left alone;
* whatever happens, the service is stopped.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from clients.commands import pixels
from clients.commands.demo_listener import BATCH_SIZE, Heard, Listener
from clients.commands.own_directory import own_directory
from clients.commands.screen import DIM, GOOD, LiveScreen, PlainScreen, Screen, Story
from clients.data.datasets import Dataset, load_dataset
from clients.data.tasks import SLT, SubTask, stream
from clients.evaluation import figures
from clients.evaluation.local import LocalService, free_port
from clients.evaluation.scores import Position, accuracy
from clients.http.client import GMRClient

SAMPLES_PER_SUB_TASK = 3000
"""Enough for the detector to know a sub-task before the next one begins."""

PAUSE_S = 0.18
"""Between two batches, so that eyes can follow; none in a hurry."""

SAMPLES_PER_CLASS = 4
CLASSIFY_BATCH = 500


@dataclass(frozen=True)
class DemoPlan:
    """What is asked for."""

    data: str = "digits"
    slt: str = "D2-2-2-2-2a"
    port: int = 8000
    data_dir: Path = Path(".gmr/demo")
    out: Path = Path("demo-output")  # for pictures
    fast: bool = False
    exit_when_done: bool = False

    @property
    def hurry(self) -> bool:
        """Whether to leave the pauses out."""
        return self.fast or self.exit_when_done


def demo(plan: DemoPlan, console: Console) -> int:
    """Run the demo.

    Returns:
        0 when the stream came to its end, whatever was found; 130 when it was interrupted.

    Raises:
        ClientError: the service failed, or the plan cannot be carried out.
    """
    slt = SLT.parse(plan.slt)
    dataset = load_dataset(plan.data).limited(slt, SAMPLES_PER_SUB_TASK, seed=0)
    slt.check(dataset.train_y)
    show = _Show(plan, slt, dataset, console)
    with _terminate_as_interrupt(), own_directory(plan.data_dir) as directory:
        port = free_port(plan.port)
        show.introduce(port)
        service = LocalService(data_dir=directory / "data", port=port, log=directory / "gmr.log")
        try:
            with console.status("starting the service: embedded Redis, trainer, API"):
                service.start()
            with GMRClient(service.url) as client:
                show.stream(service, client)
                show.conclude(service, client)
            if not plan.exit_when_done:
                _serve_until_interrupted(service)
        except KeyboardInterrupt:
            console.print("\nstopping the service, it drains and saves first", style=DIM)
            finished = show.finished
            service.stop()
            return 0 if finished else 130
        finally:
            service.stop()
    return 0


class _Show:
    """Streams, listens, and keeps the story up to date."""

    def __init__(self, plan: DemoPlan, slt: SLT, dataset: Dataset, console: Console) -> None:
        self._plan, self._slt, self._dataset, self._console = plan, slt, dataset, console
        sizes = [len(slt.rows(dataset.train_y, index)) for index in range(len(slt.sub_tasks))]
        self._passes = max(1, math.ceil(SAMPLES_PER_SUB_TASK / (sum(sizes) / len(sizes))))
        n_batches = [math.ceil(size * self._passes / BATCH_SIZE) for size in sizes]
        self._starts = tuple(int(start) for start in np.cumsum([0, *n_batches[:-1]]))
        self._positions = [
            Position(start, sum(sizes[:index]) * self._passes)
            for index, start in enumerate(self._starts)
        ][1:]
        self._n_samples = sum(sizes) * self._passes
        self._n_batches = sum(n_batches)
        self._n_train = sum(sizes)
        self._heard = Heard()
        self.finished = False
        self._accuracies: list[float] = []

    # Before

    def introduce(self, port: int) -> None:
        """What is about to be seen."""
        plan, tasks = self._plan, self._slt.sub_tasks
        lines = Text()
        lines.append("gmr-stream demo", style="bold")
        lines.append(f"  continual learning on a live stream of {len(tasks)} sub-tasks\n")
        groups = ", then ".join(" ".join(map(str, classes)) for classes in tasks)
        if self._passes > 1:
            lines.append(
                f"{self._n_train:,} handwritten digits that ship with scikit-learn: {groups}. They "
                f"are few, so each sub-task is streamed in {self._passes} shuffled passes: "
                f"{self._n_samples:,} samples in batches of {BATCH_SIZE}.\n"
            )
        else:
            lines.append(
                f"{self._n_samples:,} samples of {self._dataset.name} in batches of {BATCH_SIZE}: "
                f"{groups}.\n"
            )
        lines.append(
            "The service is told neither how many sub-tasks there are nor where one begins, and "
            "keeps no sample of those that are over.\n"
        )
        if port != plan.port:
            lines.append(f"Port {plan.port} is taken, so it listens on {port}.\n", style="yellow")
        self._console.print(lines, highlight=False)

    # During

    def stream(self, service: LocalService, client: GMRClient) -> None:
        """Send all sub-tasks, and test after each."""
        console = self._console
        console.print(
            f"Watch it in a browser, too: {service.url}/\n", highlight=False, soft_wrap=True
        )
        self._story = Story(
            title=f"{len(self._slt.sub_tasks)} sub-tasks of {self._dataset.name}, unannounced",
            sub_tasks=self._slt.sub_tasks,
            passes=self._passes,
            starts=self._starts,
            batches=self._n_batches,
            url=f"{service.url}/",
            colour=console.color_system is not None and not console.no_color,
        )
        live = console.is_terminal and not console.is_dumb_terminal
        screen: Screen = (LiveScreen if live else PlainScreen)(console, self._story)
        listener = Listener(service.url, self._heard, self._positions, self._story, screen)
        with screen:
            listener.start()
            pace = _Pace(0.0 if self._plan.hurry else PAUSE_S)
            for sub_task in stream(
                self._slt, self._dataset.train_x, self._dataset.train_y, epochs=self._passes
            ):
                self._send(sub_task, service, client, screen, pace)
                client.wait_until_learned()
                self._test(sub_task, client, screen)
            listener.wait_for_batches(self._n_batches)
        self.finished = True

    def _send(
        self,
        sub_task: SubTask,
        service: LocalService,
        client: GMRClient,
        screen: Screen,
        pace: _Pace,
    ) -> None:
        story = self._story
        story.sub_task = sub_task.index
        names = " ".join(map(str, sub_task.classes))
        passes = f"{self._passes} shuffled passes, " if self._passes > 1 else ""
        screen.say(f"streaming classes {names}: {passes}{len(sub_task):,} samples", DIM)
        for x, y in sub_task.batches(BATCH_SIZE):
            service.check()
            client.ingest(x, y)
            story.sent_batches += 1
            story.sent_samples += len(x)
            pace.wait()

    def _test(self, sub_task: SubTask, client: GMRClient, screen: Screen) -> None:
        """Ask about the test samples of every class seen so far, and draw one of each."""
        known = self._slt.sub_tasks[: sub_task.index + 1]
        rows = np.concatenate(
            [self._slt.rows(self._dataset.test_y, index) for index in range(len(known))]
        )
        x, y = self._dataset.test_x[rows], self._dataset.test_y[rows]
        answers = np.concatenate(
            [
                client.classify(x[start : start + CLASSIFY_BATCH]).labels
                for start in range(0, len(x), CLASSIFY_BATCH)
            ]
        )
        value = accuracy(y, answers)
        self._story.accuracies.append(value)
        self._accuracies.append(value)
        names = " ".join(str(label) for classes in known for label in classes)
        screen.say(
            f"accuracy over all classes so far: {100 * value:.1f} % ({names}; {len(y):,} test "
            f"samples)",
            GOOD,
        )
        self._story.drawn = self._thumbnails(client)

    def _thumbnails(self, client: GMRClient) -> dict[int | str, list[list[float]]]:
        shape = self._dataset.image_shape
        drawn: dict[int | str, list[list[float]]] = {}
        if shape is None or min(shape) < pixels.SIDE:
            return drawn
        for label in client.model().labels:
            sample = client.sample(1, [label], seed=self._story.sub_task).features[0]
            drawn[label] = pixels.thumbnail(sample, shape).tolist()
        return drawn

    # After

    def conclude(self, service: LocalService, client: GMRClient) -> None:
        """Pictures on disk, what was found, and where to look next."""
        console, story, score = self._console, self._story, self._heard.score
        drawn = {
            label: client.sample(SAMPLES_PER_CLASS, [label], seed=1).features
            for label in self._slt.classes
        }
        if not (console.is_terminal and not console.is_dumb_terminal):
            self._print_drawn()
        picture = self._picture(drawn)
        n = score.changes
        found = len(score.matches)
        delays = score.delays_batches
        verdict = Text()
        verdict.append(
            f"{found} of {n} boundaries found", style="bold green" if found == n else "bold red"
        )
        if delays:
            slowest = max(delays)
            verdict.append(f", each within {slowest} batch{'es' if slowest > 1 else ''}")
        verdict.append(
            f", {len(score.false) or 'no'} false alarm{'' if len(score.false) == 1 else 's'}",
            style="" if not score.false else "bold red",
        )
        verdict.append(
            f"; {100 * self._accuracies[-1]:.1f} % accuracy over all "
            f"{len(self._slt.classes)} classes, in {story.seconds:.0f} s."
        )
        console.print()
        console.print(verdict, highlight=False)
        console.print()
        url = service.url
        rows = [
            ("picture", str(picture)),
            ("samples", str(self._plan.out / "samples.png")),
            ("dashboard", f"{url}/  and there /docs, /metrics, /drift"),
            ("log", str(service.log)),
        ]
        for name, value in rows:
            console.print(Text.assemble((f"{name:11}", DIM), value), soft_wrap=True)
        if not self._plan.exit_when_done:
            console.print()
            console.print("Try it, in another terminal:", style="bold")
            first = self._slt.sub_tasks[0][0]
            for command in (
                f"curl {url}/model",
                f"curl {url}/drift/boundaries",
                f"curl -H 'Accept: image/png' -o {first}.png '{url}/sample?classes={first}'",
                f"curl -N {url}/events",
            ):
                console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)
            console.print()
            console.print("Ctrl-C stops the service.", style=DIM)

    def _print_drawn(self) -> None:
        shown = slice(1, pixels.SIDE - 1)
        drawn = self._story.drawn
        pictures = [
            (str(label), pixels.draw(np.asarray(drawn[label])[:, shown], colour=self._story.colour))
            for label in self._slt.classes
            if label in drawn
        ]
        self._console.print()
        self._console.print("samples drawn per class:", style="bold")
        for start in range(0, len(pictures), 10):
            for line in pixels.side_by_side(pictures[start : start + 10]):
                self._console.print(line)

    def _picture(self, drawn: Mapping[Any, NDArray[Any]]) -> Path:
        out = self._plan.out
        out.mkdir(parents=True, exist_ok=True)
        heard, tasks = self._heard, self._slt.sub_tasks
        ends = (*self._starts[1:], self._n_batches)
        sub_task = [
            index
            for index, (start, end) in enumerate(zip(self._starts, ends, strict=True))
            for _ in range(end - start)
        ]
        shape = self._dataset.image_shape or (1, self._dataset.n_features)
        n_test = [len(self._slt.rows(self._dataset.test_y, index)) for index in range(len(tasks))]
        figures.save(figures.samples(drawn, shape), out / "samples.png")
        return figures.save(
            figures.overview(
                [heard.rates.get(batch, math.nan) for batch in range(self._n_batches)],
                [batch in heard.set_aside for batch in range(self._n_batches)],
                sub_task,
                heard.score,
                tasks,
                self._accuracies,
                np.array(n_test) / np.cumsum(n_test),
                drawn,
                shape,
            ),
            out / "demo.png",
        )


class _Pace:
    """Keeps a steady pace: a late batch does not make the whole stream late."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._next = 0.0

    def wait(self) -> None:
        """Until the next batch is due."""
        if self._pause_s:
            now = time.monotonic()
            self._next = max(self._next + self._pause_s, now)
            time.sleep(self._next - now)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that the service is stopped in order."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve_until_interrupted(service: LocalService) -> None:
    while True:
        service.check()
        time.sleep(0.5)


def demo_command(
    data: Annotated[
        str, typer.Option(help="digits (comes with a dependency) or mnist.")
    ] = DemoPlan.data,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Preferred port; a free one where it is taken.")
    ] = DemoPlan.port,
    data_dir: Annotated[
        Path, typer.Option(help="The demo's own folder; emptied at the start.")
    ] = DemoPlan.data_dir,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = DemoPlan.out,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses to follow by eye.")] = False,
    exit_when_done: Annotated[
        bool,
        typer.Option("--exit", help="End when the stream is over; implies --fast."),
    ] = False,
) -> None:
    """Watch a live service learn handwritten digits that arrive as five sub-tasks.

    Starts the service with its embedded Redis, streams, shows each boundary as it is found,
    and goes on serving until Ctrl-C.

    Example: gmr demo --exit
    """
    plan = DemoPlan(
        data=data,
        port=port,
        data_dir=data_dir,
        out=out,
        fast=fast,
        exit_when_done=exit_when_done,
    )
    raise typer.Exit(demo(plan, Console()))
