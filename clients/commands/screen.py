"""What `gmr demo` shows: a live picture in a terminal, or plain lines elsewhere.

Rules: `Story` holds what has happened so far and knows nothing of terminals;
`frame` turns it into one picture of a given size and changes nothing; a `Screen`
shows it. The screen asks the service nothing: who streams also tells the story.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clients.commands import pixels

_BARS = " ▁▂▃▄▅▆▇█"
_CHART_ROWS = 4
_FRAMES_PER_SECOND = 8

CHANGE, RATE, GOOD, DIM = "bold yellow", "cyan", "green", "dim"


@dataclass(frozen=True)
class Found:
    """A boundary that the service reported."""

    batch: int  # of the stream, at which it was reported
    before: float  # inlier rate
    after: float
    delay_batches: int | None  # None: no true change to go with it

    @property
    def verdict(self) -> str:
        """How it compares with the truth, which the service does not know."""
        if self.delay_batches is None:
            return "false alarm"
        return f"after {self.delay_batches} batch{'es' if self.delay_batches > 1 else ''}"


@dataclass
class Story:
    """What has happened so far. One thread writes it, another may draw it meanwhile."""

    title: str
    sub_tasks: tuple[tuple[int | str, ...], ...]
    passes: int  # over the samples of each sub-task
    starts: tuple[int, ...]  # batch at which each sub-task begins
    batches: int  # of the whole stream
    url: str
    colour: bool = True

    began: float = field(default_factory=time.monotonic)
    sub_task: int = 0
    sent_batches: int = 0
    sent_samples: int = 0
    rates: dict[int, float] = field(default_factory=dict)  # batch -> inlier rate
    found: list[Found] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)  # on all classes seen, per sub-task
    lines: list[tuple[float, str, str]] = field(default_factory=list)  # seconds, text, style
    drawn: dict[int | str, list[list[float]]] = field(default_factory=dict)  # class -> thumbnail

    @property
    def seconds(self) -> float:
        """Since the story began."""
        return time.monotonic() - self.began

    def say(self, text: str, style: str = "") -> tuple[float, str, str]:
        """Add a line to the log of events and give it back."""
        line = (self.seconds, text, style)
        self.lines.append(line)
        return line


class Screen(Protocol):
    """Somewhere to show a story; a context manager."""

    def say(self, text: str, style: str = "") -> None:
        """Something worth a line happened."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PlainScreen:
    """Lines, one per event: for pipes, log files and terminals that cannot move the cursor."""

    def __init__(self, console: Console, story: Story) -> None:
        self._console, self._story = console, story
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def say(self, text: str, style: str = "") -> None:
        """Print the line, with the time."""
        with self._lock:
            seconds, text, style = self._story.say(text, style)
            line = Text.assemble((f"{seconds:6.1f} s  ", DIM), (text, style))
            self._console.print(line, soft_wrap=True)


class LiveScreen:
    """A picture that is redrawn in place; the last one stays when the block ends."""

    def __init__(self, console: Console, story: Story) -> None:
        self._story = story
        self._live = Live(
            _Frame(story),
            console=console,
            refresh_per_second=_FRAMES_PER_SECOND,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """Show the line among the latest."""
        self._story.say(text, style)


class _Frame:
    """The story at the moment it is drawn, in whatever size the terminal then has."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # One row fewer than the terminal has, or it would scroll.
        yield frame(self._story, options.max_width, console.size.height - 1)


def frame(story: Story, width: int, height: int) -> RenderableType:
    """The story as one picture.

    Arguments:
        story: What has happened so far.
        width: Columns of the terminal.
        height: Rows that may be used; at 23 everything fits, fewer show fewer events.
    """
    width = min(width, 120)
    blank = Text("")
    top: list[RenderableType] = [_headline(story, width), _progress(story, width)]
    chart = _chart(story, width)
    lower = _lower(story, width)
    used = len(top) + len(chart) + 1 + lower.row_count
    room = max(1, min(12, height - used - 1))
    events = [_event(line, width) for line in story.lines[-room:]]
    return Group(*top, *chart, blank, lower, blank, *events)


def _headline(story: Story, width: int) -> Text:
    left = Text.assemble((" gmr-stream demo ", "bold reverse"), "  ", story.title)
    right = Text(story.url, style=f"{RATE} underline")
    room = width - left.cell_len - right.cell_len
    if room < 2:
        left.truncate(max(20, width - right.cell_len - 2), overflow="ellipsis")
        room = max(2, width - left.cell_len - right.cell_len)
    return left + Text(" " * room) + right


def _progress(story: Story, width: int) -> Text:
    classes = _names(story.sub_tasks[story.sub_task])
    first, last = _span(story, story.sub_task)
    share = (story.sent_batches - first) / max(1, last - first)
    passing = min(story.passes, int(share * story.passes) + 1)
    left = Text.assemble(
        ("sub-task ", DIM),
        (str(story.sub_task), "bold"),
        ("  classes ", DIM),
        (classes, "bold"),
        ("  pass ", DIM),
        (f"{passing} of {story.passes}  ", "bold"),
    )
    done = story.sent_batches / max(1, story.batches)
    rate = story.sent_samples / max(story.seconds, 1e-3)
    right = Text(f" {100 * done:3.0f} %  {rate:,.0f}/s")
    room = max(5, width - left.cell_len - right.cell_len)
    filled = round(done * room)
    bar = Text.assemble(("━" * filled, RATE), ("━" * (room - filled), "bright_black"))
    return left + bar + right


def _chart(story: Story, width: int) -> list[Text]:
    """The inlier rate over the whole stream, boundaries in another colour and marked below."""
    margin = 6
    columns = width - margin
    levels = _columns(story.rates, story.batches, columns)
    place = {
        min(columns - 1, math.floor(found.batch * columns / max(1, story.batches))): number
        for number, found in enumerate(story.found, 1)
    }
    names = [" "] * columns
    for start, classes in zip(story.starts, story.sub_tasks, strict=True):
        at = round(start * columns / max(1, story.batches))
        label = f"╷{_names(classes)}" if start else _names(classes)
        for offset, letter in enumerate(label[: columns - at]):
            names[at + offset] = letter
    rows = [Text.assemble(("true  ", DIM), ("".join(names).rstrip(), DIM))]
    for row in range(_CHART_ROWS):
        scale = {0: "1.0 ", _CHART_ROWS - 1: "0.0 "}.get(row, "    ")
        line = Text(f"{scale}┤ " if scale.strip() else "    │ ", style=DIM)
        for column, level in enumerate(levels):
            eighths = 0 if math.isnan(level) else round(level * 8 * _CHART_ROWS)
            part = min(8, max(0, eighths - 8 * (_CHART_ROWS - 1 - row)))
            if column in place:
                line.append("┃", CHANGE)
            else:
                line.append(_BARS[part], RATE)
        rows.append(line)
    marks = [" "] * columns
    for column, number in place.items():
        for offset, letter in enumerate(f"▲{number}"[: columns - column]):
            marks[column + offset] = letter
    if place:
        rows.append(Text.assemble(("found ", DIM), ("".join(marks).rstrip(), CHANGE)))
    else:
        rows.append(
            Text("      inlier rate of each batch; boundaries appear as they are found", DIM)
        )
    return rows


def _columns(rates: dict[int, float], batches: int, columns: int) -> list[float]:
    """The lowest known rate of each column's batches; NaN where none is known."""
    levels = []
    for column in range(columns):
        first = math.floor(column * batches / columns)
        last = max(first + 1, math.floor((column + 1) * batches / columns))
        known = [rates[batch] for batch in range(first, last) if batch in rates]
        levels.append(min(known) if known else math.nan)
    return levels


def _lower(story: Story, width: int) -> Table:
    """Accuracy on the left, drawn samples on the right; always the same number of rows."""
    pictures = _pictures(story, width)
    picture_width = max((line.cell_len for line in pictures), default=0)
    left_width = max(24, width - picture_width - 3)
    facts = _accuracy(story, left_width) + _boundaries(story)
    n_rows = max(1 + 2 * len(story.sub_tasks), len(facts), len(pictures))
    table = Table.grid(padding=0)
    table.add_column(width=left_width, no_wrap=True, overflow="ellipsis")
    table.add_column(width=3)
    table.add_column(no_wrap=True, overflow="crop")
    for row in range(n_rows):
        table.add_row(
            facts[row] if row < len(facts) else "",
            "",
            pictures[row] if row < len(pictures) else "",
        )
    return table


def _accuracy(story: Story, width: int) -> list[Text]:
    lines = [Text("accuracy over all classes seen so far", style="bold")]
    labels = [f"after {_names(classes)}" for classes in story.sub_tasks]
    name_width = max(map(len, labels)) + 2
    room = max(4, min(30, width - name_width - 9))
    for number, label in enumerate(labels):
        line = Text(label.ljust(name_width), style="" if number < len(story.accuracies) else DIM)
        if number < len(story.accuracies):
            value = story.accuracies[number]
            halves = round(value * room * 2)
            line.append(f"{100 * value:5.1f} %  ", style="bold")
            line.append("━" * (halves // 2) + "╸" * (halves % 2), style=GOOD)
        lines.append(line)
    return lines


def _boundaries(story: Story) -> list[Text]:
    return [
        Text.assemble(
            (f"▲{number} ", CHANGE),
            f"inlier rate {found.before:.2f} → {found.after:.2f}, {found.verdict}",
        )
        for number, found in enumerate(story.found, 1)
    ]


def _pictures(story: Story, width: int) -> list[Text]:
    """One drawn sample per class, five to a row; room is kept for those still to come."""
    classes = [label for sub_task in story.sub_tasks for label in sub_task]
    per_row = 10 if width >= 112 and len(classes) > 5 else 5
    # The outer columns of centred digits are empty: without them, five fit beside the bars.
    shown = slice(1, pixels.SIDE - 1)
    empty = np.zeros((pixels.SIDE, pixels.SIDE))
    lines = [Text("samples drawn per class", style="bold")]
    for start in range(0, len(classes), per_row):
        row = []
        for label in classes[start : start + per_row]:
            known = label in story.drawn
            image = np.asarray(story.drawn[label]) if known else empty
            picture = pixels.draw(image[:, shown], colour=story.colour and known)
            row.append((str(label) if known else "", picture))
        lines += pixels.side_by_side(row)
    return lines


def _event(line: tuple[float, str, str], width: int) -> Text:
    seconds, text, style = line
    shown = Text.assemble((f"{seconds:6.1f} s  ", DIM), (text, style))
    shown.truncate(width, overflow="ellipsis")
    return shown


def _span(story: Story, sub_task: int) -> tuple[int, int]:
    ends = (*story.starts[1:], story.batches)
    return story.starts[sub_task], ends[sub_task]


def _names(classes: Sequence[object]) -> str:
    return " ".join(map(str, classes))
