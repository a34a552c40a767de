"""`gmr ingest`: a file into a running service, with progress, and resumed when interrupted."""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from clients.commands.image_form import form_of
from clients.commands.options import (
    ByPlace,
    DecimalSign,
    DroppedColumns,
    EncodingFile,
    Every,
    FeatureColumns,
    ImageSize,
    InGrey,
    Live,
    SkipBadRows,
    Url,
)
from clients.data.arrivals import arrivals
from clients.data.encoding import TableEncoding
from clients.data.folder import files_of, holds_images, will_hold_images
from clients.data.formats.image import PATH_COLUMN
from clients.data.formats.rows import column_names
from clients.data.live import LiveInput, samples_of
from clients.data.standard_input import STANDARD_INPUT
from clients.http.client import GMRClient
from clients.http.connection import open_sender
from clients.http.errors import ClientError, InputError
from clients.http.rejected import BatchesRejected, rejected
from clients.http.retry import RetryPolicy
from clients.sending.bar import SendingBar, check_reachable
from clients.sending.feature_names import NameMatcher, NamesAfterFirst
from clients.sending.group_log import GroupLog
from clients.sending.image_shape import check_image_shape
from clients.sending.resume import ResumeFile, fingerprint, state_folder
from clients.sending.samples import Job, Totals, send, starting_point
from clients.sending.watched_images import WatchedImages
from core.counted import counted

# A full backlog is normal while the model learns, so wait for long; the display says why.
_PATIENCE_S = 600.0
_LEARNING_S = 24 * 3600.0


def ingest_command(
    file: Annotated[
        Path,
        typer.Argument(
            help="An .npz, .npy, .csv, .tsv, .jsonl, .parquet or IDX file, an image, or a folder "
            "of such files; - is standard input."
        ),
    ],
    url: Url = None,
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
    id_column: Annotated[
        str | None,
        typer.Option(help="Ids of samples, for labels that come later: as --label-column."),
    ] = None,
    text_ids: Annotated[
        bool, typer.Option("--text-ids", help="Ids are text, also those that look like numbers.")
    ] = False,
    columns: FeatureColumns = None,
    drop: DroppedColumns = None,
    encoding: EncodingFile = None,
    by_place: ByPlace = False,
    decimal: DecimalSign = ".",
    skip_bad_rows: SkipBadRows = False,
    size: ImageSize = None,
    grey: InGrey = False,
    shuffle: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="SEED",
            help="Of a folder of images: in a random order; without it by path, class after class.",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Samples per second, at most.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the file.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Send a file from its start that was sent before.")
    ] = False,
    live: Live = False,
    every: Every = 1.0,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all of it has been learned.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Of a folder: go on with files that come, until Ctrl-C.")
    ] = False,
) -> None:
    """Stream a file into a running service, in order, batch by batch.

    Interrupted, it goes on where it was when the same command is run again; no batch is
    learned twice. Ends with status 1 where batches were accepted and could not be used, as far as
    that is known by then: --wait makes it known of all.

    Example: gmr ingest train.csv --label-column class --batch-size 100

    Example: gmr ingest log.csv --drop date,place

    Example: zcat log.csv.gz | gmr ingest - --columns temperature,pressure

    Example: tail -n +1 -F readings.csv | gmr ingest - --live --skip-bad-rows

    Example: gmr ingest export.csv --decimal ,

    Example: gmr ingest orders.csv --encoding orders.encoding.json

    Example: gmr ingest photos/ --size 32,32 --shuffle 0

    Example: gmr ingest inbox/ --watch

    A folder of images is sent as one file, whose labels are the folders in it: photos/cat/1.jpg is
    a cat. With --watch images that come together are a batch. Of another folder every file is sent,
    by name, once it has not changed for two seconds. Write a file elsewhere and move it in, and
    write each once: one that grows later is told, and not sent again.

    The names of a table's columns, or of its encoding, become those of the service's features
    (`gmr features`). A later table must have the same ones, in any order; what it has besides is
    left out, unless --columns or --drop say otherwise. --by-place takes columns as they stand.

    With --id-column every sample goes with an id; one without a label waits for `gmr labels` to
    bring it. --no-labels keeps back the labels that a file has.
    """
    console = Console(stderr=True)
    sending = _Sending(
        console=console,
        url=url,
        job={
            "batch_size": batch_size,
            "epochs": epochs,
            "label_column": label_column,
            "labels": labels,
            "with_labels": not no_labels,
            "id_column": id_column,
            "text_ids": text_ids,
            "columns": column_names(columns),
            "drop": column_names(drop) or (),
            "skip_bad_rows": skip_bad_rows,
            "decimal": decimal,
            "encoding": None if encoding is None else TableEncoding.read(encoding),
            "images": form_of(size, grey),
            "shuffle": shuffle,
        },
        rate=rate,
        by_place=by_place,
        again=again,
        wait=wait,
    )
    if file.is_dir() and (watch or not holds_images(file)):
        if labels is not None:
            raise InputError(
                f"{file} is a folder, and --labels is a file of its own for one file. Keep the "
                f"labels in the files (--label-column), or send them one by one."
            )
        try:
            if watch and will_hold_images(file):
                _watch_images(file, sending)
            else:
                _send_folder(file, sending, watch=watch)
        except KeyboardInterrupt:
            console.print("Stopped watching.")
        return
    if watch:
        raise InputError(f"--watch is for a folder, and {file} is none. Name a folder.")
    if live and epochs > 1:
        raise InputError(
            f"{epochs} passes over what comes once cannot be made. Leave out --epochs or --live."
        )
    with samples_of(file, live=live, wait_s=every, most=batch_size) as (path, coming):
        sending.send(path, "standard input" if file == STANDARD_INPUT else str(file), coming)


def _send_folder(folder: Path, sending: _Sending, *, watch: bool) -> None:
    """Send every file, and go on after one that cannot be used."""
    failed = 0
    console = sending.console
    changed = partial(_say_changed, console)
    try:
        for path in files_of(folder, watch=watch, changed=changed):
            try:
                sending.send(path, str(path))
            except (InputError, BatchesRejected) as error:
                failed += 1
                _say_error(console, error)
    except KeyboardInterrupt:
        console.print("Stopped watching.")
    _check_sent(failed, folder)


def _watch_images(folder: Path, sending: _Sending) -> None:
    """Send images as they come, those that come together as a batch, until Ctrl-C."""
    job, console = sending.job, sending.console
    if job["epochs"] > 1 or job["shuffle"] is not None:
        raise InputError(
            "Images that come are sent once, as they come. Leave out --epochs and --shuffle, or "
            "--watch."
        )
    if job["id_column"] not in (None, PATH_COLUMN):
        raise InputError(
            f"Ids of images are their paths; expected --id-column {PATH_COLUMN}, not "
            f"{job['id_column']!r}."
        )
    form, with_labels, with_ids = job["images"], job["with_labels"], job["id_column"] is not None

    def tell(error: ClientError) -> None:
        if not job["skip_bad_rows"]:
            _say_error(console, error)

    with GMRClient(sending.url) as client, SendingBar(console, folder.name, None) as display:
        check_reachable(client)
        name = fingerprint([], str(folder.resolve()), client.url, form, with_labels, with_ids)
        log = GroupLog(state_folder() / f"watch-{name}.jsonl")
        if sending.again:
            log.forget()
            name = f"{name}-{secrets.token_hex(4)}"
        policy = RetryPolicy(total_s=_PATIENCE_S, notify=display.waiting)
        with closing(open_sender(sending.url, policy)) as sender:
            options = {"with_labels": with_labels, "with_ids": with_ids, "rate": sending.rate}
            watched = WatchedImages(
                folder, client, sender, log, name, form, **options, tell=tell, listener=display
            )
            display.begin()
            try:
                watched.send_what_is_left()
                changed = partial(_say_changed, console)
                coming = arrivals(
                    folder,
                    log.images,
                    most=job["batch_size"],
                    unusable=watched.unusable,
                    changed=changed,
                )
                for images in coming:
                    watched.send(images)
                    if sending.wait:
                        client.wait_until_learned(_LEARNING_S)
            except KeyboardInterrupt:
                display.end()
                console.print("Stopped watching.")
            typer.echo(_summary(watched.totals, None))
        n = len(watched.unusable)
        if not job["skip_bad_rows"]:
            _check_sent(n, folder)
        elif n:
            console.print(f"{counted(n, 'image')} could not be used, left out.")
        rejected(client, f"{name}-").check("samples")


def _say_changed(console: Console, path: Path) -> None:
    console.print(
        f"{path} has changed since it was sent, and is not sent again. Write what is new into a "
        f"file of its own.",
        highlight=False,
        soft_wrap=True,
    )


def _say_error(console: Console, error: Exception) -> None:
    console.print(f"Error: {error}", style="red", highlight=False, soft_wrap=True)


def _check_sent(failed: int, folder: Path) -> None:
    if failed:
        raise InputError(
            f"{counted(failed, 'file')} of {folder} could not be sent whole, as told above. Put "
            f"right what is wrong, and run the same command again: what was sent is not sent twice."
        )


@dataclass
class _Sending:
    """How files are sent."""

    console: Console
    url: str | None
    job: dict[str, Any]
    rate: float | None
    by_place: bool
    again: bool
    wait: bool

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
        console, url = self.console, self.url
        epochs: int = self.job["epochs"]
        with GMRClient(url) as client:
            matcher = NameMatcher(client, by_place=self.by_place)
            options = self.job
            columns = matcher.columns_of(
                path,
                options["columns"],
                (options["label_column"], options["id_column"], *options["drop"]),
                encoded=options["encoding"] is not None,
                decimal=options["decimal"],
            )
            job = Job.of(path, **{**options, "columns": columns}, live=live)
            with SendingBar(console, Path(name).name, job.n_samples) as display:
                check_reachable(client)
                # What comes does not come again, so how far it got ends with it.
                folder = state_folder() if live is None else path.parent
                resume = ResumeFile(
                    folder / f"{job.name}-{fingerprint([], client.url)}.json",
                    {
                        "file": name if name == "standard input" else str(path.resolve()),
                        "url": client.url,
                    },
                )
                check_image_shape(client, job.source)
                progress = starting_point(client, resume, again=self.again)
                if progress.finished and progress.epoch + 1 >= epochs:
                    console.print(
                        f"{name} was sent completely before: {progress.samples} samples on "
                        f"{time.strftime('%d %B %Y at %H:%M', time.localtime(progress.time))}. "
                        f"Use --again to send it once more."
                    )
                    rejected(client, f"{job.name}-{progress.run}-").check("samples")
                    return
                matched = matcher.match(job.source)
                for remark in matched.remarks:  # while it is not too late for Ctrl-C
                    console.print(remark, highlight=False, markup=False, soft_wrap=True)
                job = replace(job, source=matched.source)
                display.begin(progress.samples)
                policy = RetryPolicy(total_s=_PATIENCE_S, notify=display.waiting)
                try:
                    with closing(open_sender(url, policy)) as sender:
                        listener = NamesAfterFirst(display, client, matched.missing)
                        totals = send(
                            sender, job, resume, progress, rate=self.rate, listener=listener
                        )
                    waited = None
                    if self.wait:
                        display.note("sent; waiting until all is learned")
                        began = time.monotonic()
                        client.wait_until_learned(_LEARNING_S)
                        waited = time.monotonic() - began
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
                typer.echo(_summary(totals, waited))
                skipped = totals.skipped + (0 if live is None else live.untold)
                if skipped:
                    console.print(f"{counted(skipped, 'row')} could not be used, left out.")
                encoding: TableEncoding | None = self.job["encoding"]
                for remark in () if encoding is None else encoding.remarks:
                    console.print(remark, highlight=False, markup=False)
                if encoding is not None:
                    encoding.forget_remarks()  # of a folder the next file is told by itself
                rejected(client, f"{job.name}-{progress.run}-").check("samples")


def _summary(totals: Totals, learned_after: float | None) -> str:
    text = (
        f"{counted(totals.samples, 'sample')} in {counted(totals.batches, 'batch', 'batches')}, "
        f"{totals.duplicate_samples} of them there before, in {totals.seconds:.1f} s "
        f"({totals.samples_per_second:,.0f} samples/s); "
    )
    if learned_after is None:
        return text + f"backlog {counted(totals.backlog, 'entry', 'entries')}"
    rate = totals.samples / (totals.seconds + learned_after)
    return text + f"all learned {learned_after:.1f} s later ({rate:,.0f} samples/s end to end)"
