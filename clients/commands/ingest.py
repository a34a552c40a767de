"""`gmr ingest`: a file into a running service, with progress, and resumed when interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clients.commands.file_sender import FileSender, JobOptions, check_sent, say_error
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
    ModelColumn,
    SkipBadRows,
    Url,
)
from clients.commands.part_sender import PartSender
from clients.commands.watched_folder import watch_images
from clients.data.encoding import TableEncoding
from clients.data.folder import files_of, holds_images, will_hold_images
from clients.data.formats.rows import column_names
from clients.data.live import input_of
from clients.data.standard_input import STANDARD_INPUT
from clients.http.errors import InputError
from clients.http.rejected import BatchesRejected


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
    model_column: ModelColumn = None,
    make_models: Annotated[
        bool,
        typer.Option("--make-models", help="Make models that it names and that are not there."),
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
    learned twice. So it does where a bad row has stopped it and was put right, and of a file that
    has grown it sends what is new. Ends with status 1 where batches were accepted and could not
    be used, as far as that is known by then: --wait makes it known of all.

    Example: gmr ingest train.csv --label-column class --batch-size 100

    Example: gmr ingest log.csv --drop date,place

    Example: zcat log.csv.gz | gmr ingest - --columns temperature,pressure

    Example: tail -n +1 -F readings.csv | gmr ingest - --live --skip-bad-rows

    Example: gmr ingest export.csv --decimal ,

    Example: gmr ingest orders.csv --encoding orders.encoding.json

    Example: gmr ingest photos/ --size 32,32 --shuffle 0

    Example: gmr ingest inbox/ --watch

    Example: gmr ingest fleet.csv --model-column machine --make-models

    A folder of images is sent as one file, whose labels are the folders in it: photos/cat/1.jpg is
    a cat. With --watch images that come together are a batch. Of another folder every file is sent,
    by name, once it has not changed for two seconds; of one that grows later, what is new. Write a
    file elsewhere and move it in, or write whole lines.

    The names of a table's columns, or of its encoding, become those of the service's features
    (`gmr features`). A later table must have the same ones, in any order; what it has besides is
    left out, unless --columns or --drop say otherwise. --by-place takes columns as they stand.

    With --model-column the rows of a table go to the named models (`gmr models`) that the column
    says, model after model; it is no feature. Each goes on where it was, as a file of its own.

    What was sent is known by its batches: --again, another file or, on another machine, another
    --batch-size sends the same samples a second time, also where they have ids.

    With --id-column every sample goes with an id; one without a label waits for `gmr labels` to
    bring it. --no-labels keeps back the labels that a file has.
    """
    console = Console(stderr=True)
    files = FileSender(
        console=console,
        url=url,
        options=JobOptions(
            batch_size=batch_size,
            epochs=epochs,
            label_column=label_column,
            labels=labels,
            with_labels=not no_labels,
            id_column=id_column,
            text_ids=text_ids,
            columns=column_names(columns),
            drop=column_names(drop) or (),
            skip_bad_rows=skip_bad_rows,
            decimal=decimal,
            encoding=None if encoding is None else TableEncoding.read(encoding),
            images=form_of(size, grey),
            shuffle=shuffle,
        ),
        rate=rate,
        by_place=by_place,
        again=again,
        wait=wait,
    )
    sender: FileSender | PartSender = files
    if model_column is not None:
        sender = PartSender(files, model_column, make_models)
    elif make_models:
        raise InputError(
            "--make-models is for models that a table names. Add --model-column, or leave it out."
        )
    if file.is_dir() and (watch or not holds_images(file)):
        if labels is not None:
            raise InputError(
                f"{file} is a folder, and --labels is a file of its own for one file. Keep the "
                f"labels in the files (--label-column), or send them one by one."
            )
        try:
            if watch and model_column is None and will_hold_images(file):
                watch_images(file, files)
            else:
                _send_folder(file, sender, console, watch=watch)
        except KeyboardInterrupt:
            console.print("Stopped watching.")
        return
    if watch:
        raise InputError(f"--watch is for a folder, and {file} is none. Name a folder.")
    if live and epochs > 1:
        raise InputError(
            f"{epochs} passes over what comes once cannot be made. Leave out --epochs or --live."
        )
    if live and model_column is not None:
        raise InputError(
            "Lines that come one by one are not parted by --model-column. Send those of each model "
            "by a command of its own with --model, or leave out --live."
        )
    with input_of(file, live=live, wait_s=every, most=batch_size) as (path, coming):
        sender.send(path, "standard input" if file == STANDARD_INPUT else str(file), coming)


def _send_folder(
    folder: Path, files: FileSender | PartSender, console: Console, *, watch: bool
) -> None:
    """Send every file, and go on after one that cannot be used."""
    failed = 0
    try:
        for path in files_of(folder, watch=watch):
            try:
                files.send(path, str(path))
            except (InputError, BatchesRejected) as error:
                failed += 1
                say_error(console, error)
    except KeyboardInterrupt:
        console.print("Stopped watching.")
    check_sent(failed, folder)
