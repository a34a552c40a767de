"""How `gmr ingest` sends: one file with its display, and what is told of it at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import typer
from rich.console import Console

from clients.counters import counting
from clients.data.encoding import TableEncoding
from clients.data.formats.image import ImageForm, ImageSource
from clients.data.live import LiveInput
from clients.http.client import GMRClient
from clients.http.connection import open_sender
from clients.http.errors import InputError, RequestRefused
from clients.http.retry import RetryPolicy
from clients.rounding import Rounding
from clients.sending.bar import SendingBar, check_reachable
from clients.sending.feature_names import NameMatcher, NamesAfterFirst
from clients.sending.image_shape import check_image_shape
from clients.sending.job import Job
from clients.sending.new_model import is_made_by_batch
from clients.sending.permission import Verdicts, check_may_read
from clients.sending.resume import (
    Progress,
    ResumeFile,
    in_other_batches,
    resume_files,
    state_folder,
)
from clients.sending.samples import (
    ProgressListener,
    Totals,
    send,
    sent_part,
    starting_point,
)
from core.counted import counted

# A full backlog is normal while the model learns, so wait for long; the display says why.
PATIENCE_S = 600.0
LEARNING_S = 24 * 3600.0

SHOW_COUNTING = 200
"""Samples of which a feature that never fell is told."""


@dataclass(frozen=True)
class JobOptions:
    """How samples are read and cut into batches, as `clients.sending.job.Job.of` takes it."""

    batch_size: int
    epochs: int
    label_column: str | None
    labels: Path | None
    with_labels: bool
    id_column: str | None
    text_ids: bool
    columns: Sequence[str] | None
    drop: Sequence[str]
    skip_bad_rows: bool
    decimal: str
    encoding: TableEncoding | None
    images: ImageForm
    shuffle: int | None


@dataclass(frozen=True)
class FileSender:
    """Sends files.

    Arguments:
        console: Where what happens is told.
        url: Where the service listens; None: where the environment says.
        options: How files are read.
        rate: Samples per second, at most.
        by_place: Take features by their places, whatever their names.
        again: Send what was sent before.
        wait: Wait until all is learned.
        rounding: Looks at numbers before they are float32, of all files together.
        model: Whose rows a file holds, where it is a part of what the person sends; None: it is
            that itself.
        verdicts: Looks what became of what was sent, of all files together.
        counters: Names of features that were told to never fall, of all files together.
    """

    console: Console
    url: str | None
    options: JobOptions
    rate: float | None
    by_place: bool
    again: bool
    wait: bool
    rounding: Rounding = field(default_factory=Rounding)
    model: str | None = None
    verdicts: Verdicts = field(default_factory=Verdicts)
    counters: set[str] = field(default_factory=set)

    def check_may_wait(self, client: GMRClient) -> None:
        """Fail where --wait was asked for with a key that may not know when all is learned."""
        if self.wait:
            check_may_read(client, "--wait", "Or leave out --wait.")

    def send(self, path: Path, name: str, live: LiveInput | None = None) -> None:
        """Send one file, from where it was left.

        Arguments:
            path: The file.
            name: What it is called to the person who sends it.
            live: Where the samples come from of which the file holds the first.

        Raises:
            InputError: It cannot be used.
            BatchesRejected: Batches of it were accepted and could not be used.
        """
        console, url, options = self.console, self.url, self.options
        with GMRClient(url) as client:
            matcher = NameMatcher(client, by_place=self.by_place)
            columns = matcher.columns_of(
                path,
                options.columns,
                (options.label_column, options.id_column, *options.drop),
                encoded=options.encoding is not None,
                decimal=options.decimal,
            )
            job = Job.of(
                path, **vars(options) | {"columns": columns}, live=live, rounding=self.rounding
            )
            self.tell_rounding(name)
            with SendingBar(console, Path(name).name, job.n_samples) as display:
                check_reachable(client, sends=True)
                self.check_may_wait(client)
                # What comes does not come again, so how far it got ends with it.
                folder = state_folder() if live is None else path.parent
                temporary = name == "standard input" or self.model is not None
                about = name if temporary else str(path.resolve())
                resume, others = resume_files(
                    folder, job.start, job.content, client.url, {"file": about, "url": client.url}
                )
                check_image_shape(client, job.source)
                progress = starting_point(client, resume.load(), again=self.again)
                size = options.batch_size
                if not self.again and not progress.name:
                    progress, size = self._in_other_batches(client, job, folder, progress, name)
                if progress.finished and progress.epoch + 1 >= options.epochs:
                    batches = "" if size == options.batch_size else f", in batches of {size}"
                    console.print(
                        f"{name} was sent completely before: {progress.samples} samples on "
                        f"{time.strftime('%d %B %Y at %H:%M', time.localtime(progress.time))}"
                        f"{batches}. Use --again to send it once more."
                    )
                    self.verdicts.check(
                        client, f"{progress.name}-{progress.run}-", "samples", console
                    )
                    return
                matched = matcher.match(job.source)
                for remark in matched.remarks:  # while it is not too late for Ctrl-C
                    console.print(remark, highlight=False, markup=False, soft_wrap=True)
                job = replace(job, source=matched.source)
                if not self.again and not progress.name:
                    display.note("comparing with what was sent before")
                    progress = self._after_sent_part(client, job, others, progress, name)
                encoding = options.encoding
                if encoding is not None:
                    encoding.forget_remarks()  # of another file, and of what was only compared
                display.begin(progress.samples)
                before = 0
                if self.wait and options.id_column is not None:
                    before = _learned(client)
                policy = RetryPolicy(total_s=PATIENCE_S, notify=display.waiting)
                try:
                    with closing(open_sender(url, policy)) as sender:
                        named = NamesAfterFirst(display, client, matched.missing)
                        listener: ProgressListener
                        listener = _WithRounding(named, self, name)
                        if live is not None:  # which may have no end
                            listener = _WithCounters(listener, self, job, name)
                        totals = send(
                            sender, job, resume, progress, rate=self.rate, listener=listener
                        )
                    waited, learned, awaiting = None, 0, 0
                    if self.wait:
                        display.note("sent; waiting until all is learned")
                        began = time.monotonic()
                        client.wait_until_learned(LEARNING_S)
                        waited = time.monotonic() - began
                        if options.id_column is not None:
                            model = client.model()
                            learned, awaiting = model.samples_seen - before, model.awaiting
                except InputError as error:
                    display.end()
                    told = str(error).replace(str(path), name)
                    how_far = _how_far(resume.load().samples, live=live is not None)
                    raise InputError(f"{told} {how_far}", **error.context) from error
                except KeyboardInterrupt:
                    display.end()
                    if live is not None:
                        console.print(
                            f"Stopped after {counted(resume.load().samples, 'sample')}; what had "
                            f"come since the last batch was not sent."
                        )
                        raise typer.Exit(130) from None
                    console.print(
                        "Interrupted. Run the same command again to go on from here; nothing will "
                        "be learned twice."
                    )
                    raise typer.Exit(130) from None
                display.end()
                whose = "" if self.model is None else f"{self.model}: "
                typer.echo(whose + summary(totals, waited, learned, awaiting))
                skipped = totals.skipped + (0 if live is None else live.untold)
                if skipped:
                    console.print(f"{counted(skipped, 'row')} could not be used, left out.")
                for remark in () if encoding is None else encoding.remarks:
                    console.print(remark, highlight=False, markup=False)
                self.tell_counters(job, name)
                prefix = f"{progress.name or job.name}-{progress.run}-"
                self.verdicts.check(client, prefix, "samples", console)

    def _in_other_batches(
        self, client: GMRClient, job: Job, folder: Path, progress: Progress, name: str
    ) -> tuple[Progress, int]:
        """The progress of a file that was sent in batches of another size, and that size.

        The service knows batches, not samples: cut otherwise, the same samples are new to it.

        Arguments:
            folder: Where progress is kept.
            progress: Where to begin otherwise.
            name: What the file is called to the person who sends it.

        Raises:
            InputError: A part of it was sent so, which would be learned a second time.
        """
        mine = progress, job.batch_size
        found = in_other_batches(folder, job.content, client.url)
        if found is None:
            return mine
        sent, size = found
        earlier = starting_point(client, sent, again=False)
        if not earlier.samples:  # the service does not hold it
            return mine
        if not earlier.finished or earlier.epoch + 1 < job.epochs:
            raise InputError(
                f"Of {name} {counted(earlier.samples, 'sample')} were sent before, in batches of "
                f"{size}. In batches of {job.batch_size} they would be learned a second time. Go "
                f"on with --batch-size {size}, or send all of it once more with --again."
            )
        return earlier, size

    def tell_rounding(self, name: str) -> None:
        """Tell once which columns float32 is too coarse for, of the first file with some.

        Arguments:
            name: What the file is called to the person who sends it.
        """
        if (news := self.rounding.news(name)) is not None:
            self.console.print(f"Warning: {news}", highlight=False, markup=False, soft_wrap=True)

    def tell_counters(self, job: Job, name: str) -> None:
        """Tell once which features of a table never fell in what was sent of it.

        Arguments:
            job: Which was sent, or is being sent.
            name: What the file is called to the person who sends it.
        """
        if isinstance(job.source, ImageSource):
            return
        places = counting([job.counters], SHOW_COUNTING)
        called = dict(enumerate(job.source.feature_names or ()))
        columns = [str(called.get(place, place)) for place in places]
        columns = [column for column in columns if column not in self.counters]
        if not columns:
            return
        self.counters.update(columns)
        several, n = len(columns) > 1, int(job.counters.n[list(places)].max())
        them, dropped = "them" if several else "it", ",".join(columns)
        how = ""  # of an array
        if self.options.encoding is not None:
            how = f" (gmr encoding --drop {dropped})"
        elif called:
            how = f" (--drop {dropped})"
        self.console.print(
            f"Warning: {'Columns' if several else 'Column'} {' and '.join(columns)} of {name} "
            f"never fell over {counted(n, 'sample')}. A counter or a clock is no feature: each "
            f"later sample is new by {them}, so that changes are missed, or found where there is "
            f"none. Begin anew without {them}{how}, or with the rise from row to row instead.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def _after_sent_part(
        self,
        client: GMRClient,
        job: Job,
        others: Sequence[ResumeFile],
        progress: Progress,
        name: str,
    ) -> Progress:
        """Where to begin with a content that was never sent, but perhaps a part of it was.

        Arguments:
            others: Of contents that begin as it does, the newest first.
            progress: Where to begin otherwise.
            name: What the file is called to the person who sends it.
        """
        earlier = sent_part(job, [other.load() for other in others])
        if earlier is None:
            return progress
        progress = starting_point(client, earlier, again=False)
        if progress.samples:
            self.console.print(
                f"{name} begins with {counted(progress.samples, 'sample')} that were sent before, "
                f"and goes on after them.",
                highlight=False,
                soft_wrap=True,
            )
        return progress


@dataclass(frozen=True)
class _WithRounding:
    """Tells of columns that float32 is too coarse for as soon as samples show them."""

    listener: ProgressListener
    files: FileSender
    name: str

    def sent(self, totals: Totals) -> None:
        """A batch was acknowledged."""
        self.listener.sent(totals)
        self.files.tell_rounding(self.name)


@dataclass(frozen=True)
class _WithCounters:
    """Tells of features that never fell as soon as enough samples show it."""

    listener: ProgressListener
    files: FileSender
    job: Job
    name: str

    def sent(self, totals: Totals) -> None:
        """A batch was acknowledged."""
        self.listener.sent(totals)
        self.files.tell_counters(self.job, self.name)


def _learned(client: GMRClient) -> int:
    """Samples that the model has learned; none where the first batch makes it."""
    try:
        return client.model().samples_seen
    except RequestRefused as error:
        if not is_made_by_batch(error):
            raise
        return 0


def say_error(console: Console, error: Exception) -> None:
    """Tell what could not be sent, where others can."""
    console.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)


def check_sent(failed: int, folder: Path) -> None:
    """Raise `InputError` where files of a folder could not be sent."""
    if failed:
        raise InputError(
            f"{counted(failed, 'file')} of {folder} could not be sent whole, as told above. Put "
            f"right what is wrong, and run the same command again: what was sent is not sent twice."
        )


def _how_far(n: int, *, live: bool) -> str:
    """How much was accepted of what ends by a row that cannot be used, and what follows.

    Arguments:
        n: Samples that were accepted.
        live: Whether they came line by line.
    """
    sent = f"Accepted before it: {counted(n, 'sample')}, in whole batches"
    if live:
        return f"{sent}; what came with it, and later, was not sent."
    if not n:
        return "Nothing was sent."
    return f"{sent}. Put the file right and run the same command again: it goes on after them."


def summary(
    totals: Totals, learned_after: float | None, learned: int = 0, awaiting: int = 0
) -> str:
    """What was sent, in a line.

    Arguments:
        totals: What was sent.
        learned_after: Seconds after which nothing was left to learn; None where nobody waited.
        learned: Samples that the model has learned meanwhile, of all senders; told where some
            await their label.
        awaiting: Samples that await their label then, in all.
    """
    text = (
        f"{counted(totals.samples, 'sample')} in {counted(totals.batches, 'batch', 'batches')}, "
        f"{totals.duplicate_samples} of them there before, in {totals.seconds:.1f} s "
        f"({totals.samples_per_second:,.0f} samples/s); "
    )
    if learned_after is None:
        return text + f"backlog {counted(totals.backlog, 'entry', 'entries')}"
    if awaiting:
        return text + (
            f"the model learned {counted(learned, 'sample')} meanwhile, whoever sent them; no "
            f"backlog {learned_after:.1f} s later; {counted(awaiting, 'sample')} await their label"
        )
    rate = totals.samples / (totals.seconds + learned_after)
    return text + f"all learned {learned_after:.1f} s later ({rate:,.0f} samples/s end to end)"
