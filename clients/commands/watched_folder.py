"""`gmr ingest FOLDER --watch`, where the folder holds images: those that come, as they come."""

from __future__ import annotations

import secrets
from contextlib import closing
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from clients.commands.file_sender import (
    LEARNING_S,
    PATIENCE_S,
    FileSender,
    check_sent,
    say_error,
    summary,
)
from clients.data.arrivals import arrivals
from clients.data.formats.image import PATH_COLUMN
from clients.http.client import GMRClient
from clients.http.connection import open_sender
from clients.http.errors import ClientError, InputError
from clients.http.retry import RetryPolicy
from clients.sending.bar import SendingBar, check_reachable
from clients.sending.group_log import GroupLog
from clients.sending.resume import fingerprint, state_folder
from clients.sending.watched_images import WatchedImages
from core.counted import counted


def watch_images(folder: Path, files: FileSender) -> None:
    """Send images as they come, those that come together as a batch, until Ctrl-C."""
    options, console = files.options, files.console
    if options.epochs > 1 or options.shuffle is not None:
        raise InputError(
            "Images that come are sent once, as they come. Leave out --epochs and --shuffle, or "
            "--watch."
        )
    if options.id_column not in (None, PATH_COLUMN):
        raise InputError(
            f"Ids of images are their paths; expected --id-column {PATH_COLUMN}, not "
            f"{options.id_column!r}."
        )
    form, with_labels = options.images, options.with_labels
    with_ids = options.id_column is not None

    def tell(error: ClientError) -> None:
        if not options.skip_bad_rows:
            say_error(console, error)

    with GMRClient(files.url) as client, SendingBar(console, folder.name, None) as display:
        check_reachable(client, sends=True)
        files.check_may_wait(client)
        name = fingerprint([], str(folder.resolve()), client.url, form, with_labels, with_ids)
        log = GroupLog(state_folder() / f"watch-{name}.jsonl")
        if files.again:
            log.forget()
            name = f"{name}-{secrets.token_hex(4)}"
        policy = RetryPolicy(total_s=PATIENCE_S, notify=display.waiting)
        with closing(open_sender(files.url, policy)) as sender:
            watched = WatchedImages(
                folder,
                client,
                sender,
                log,
                name,
                form,
                with_labels=with_labels,
                with_ids=with_ids,
                rate=files.rate,
                tell=tell,
                listener=display,
            )
            display.begin()
            try:
                watched.send_what_is_left()
                changed = partial(_say_changed, console)
                coming = arrivals(
                    folder,
                    log.images,
                    most=options.batch_size,
                    unusable=watched.unusable,
                    changed=changed,
                )
                for images in coming:
                    watched.send(images)
                    if files.wait:
                        client.wait_until_learned(LEARNING_S)
            except KeyboardInterrupt:
                display.end()
                console.print("Stopped watching.")
            typer.echo(summary(watched.totals, None))
        n = len(watched.unusable)
        if not options.skip_bad_rows:
            check_sent(n, folder)
        elif n:
            console.print(f"{counted(n, 'image')} could not be used, left out.")
        files.verdicts.check(client, f"{name}-", "samples", console)


def _say_changed(console: Console, path: Path) -> None:
    """Tell of an image that is another one since it was sent."""
    console.print(
        f"{path} has changed since it was sent, and is not sent again. Give what is new a name of "
        f"its own.",
        highlight=False,
        soft_wrap=True,
    )
