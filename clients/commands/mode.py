"""`gmr freeze`, `gmr detect-only`, `gmr thaw` and `gmr ert`: what becomes of batches that come."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, By, Url
from clients.http.answers import Restored
from clients.http.client import GMRClient
from clients.http.errors import InputError

Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why; told with the event mode_changed.")
]


def freeze_command(
    reason: Reason = None, by: By = None, url: Url = None, as_json: AsDocument = False
) -> None:
    """Learn nothing any more: batches that come are scored, counted, told, and not learned.

    Example: gmr freeze --reason "a sensor is being replaced"

    What passes by is not learned later either; send it again after `gmr thaw` where it should be.
    """
    with GMRClient(url) as client:
        done = client.freeze(reason, by=by)
    _tell(done, as_json, "frozen")


def detect_only_command(
    reason: Reason = None, by: By = None, url: Url = None, as_json: AsDocument = False
) -> None:
    """Find changes and tell them, but learn nothing and cross no boundary.

    Example: gmr detect-only
    """
    with GMRClient(url) as client:
        done = client.detect_only(reason, by=by)
    _tell(done, as_json, "detect_only")


def thaw_command(
    reason: Reason = None, by: By = None, url: Url = None, as_json: AsDocument = False
) -> None:
    """Learn again, from where the model was frozen.

    Example: gmr thaw
    """
    with GMRClient(url) as client:
        done = client.thaw(reason, by=by)
    _tell(done, as_json, "learn")


def ert_command(
    samples: Annotated[
        str, typer.Argument(metavar="SAMPLES", help="From 2 on; `settings`: what these say.")
    ],
    by: By = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Ask for another run time between false alarms, in samples.

    Example: gmr ert 50000

    Example: gmr ert settings
    """
    wanted = None if samples == "settings" else _samples(samples)
    with GMRClient(url) as client:
        done = client.set_ert(wanted, by=by)
    if as_json:
        print_json(
            {
                "entry_id": done.entry_id,
                "applied": done.applied,
                "ert": wanted,
                "warning": done.warning,
            }
        )
    else:
        asked = "what the settings say" if wanted is None else f"{wanted:,} samples"
        typer.echo(f"The detector {_aims(done)} at {asked} between false alarms")
        if done.warning:
            typer.echo(f"Warning: {done.warning}", err=True)


def _samples(text: str) -> int:
    plain = text.replace("_", "").replace(",", "")
    if not plain.isdecimal() or int(plain) < 2:
        raise InputError(
            f"The run time between false alarms is {text!r}; expected a whole number of samples "
            f"from 2 on, like 50000, or `settings`. A time, such as 30d, is for the "
            f"settings: begin the service with GMR_ERT=30d, or make a model by "
            f"`gmr models make NAME --set ert=30d`."
        )
    return int(plain)


def _aims(done: Restored) -> str:
    return "aims" if done.applied else f"will aim (entry {done.entry_id})"


def _tell(done: Restored, as_json: bool, mode: str) -> None:
    if as_json:
        print_json({"entry_id": done.entry_id, "applied": done.applied, "mode": mode})
    elif done.applied:
        typer.echo(f"The mode is {mode}; version {done.model_version} answers")
    else:
        typer.echo(
            f"Entry {done.entry_id} asks for the mode {mode}; the trainer has yet to read it"
        )
