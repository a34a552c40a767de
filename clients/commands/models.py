"""`gmr models`: the named models of a service, beside its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Final, cast

import typer
from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

from clients.commands.assignments import assignments
from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.commands.versions import on_terminal
from clients.http.answers import ListedModel, NamedModel
from clients.http.client import GMRClient
from clients.http.errors import HasLearned, InputError
from core.counted import counted


class Action(StrEnum):
    """What to do with models."""

    LIST = "list"
    MAKE = "make"
    COPY = "copy"
    SHOW = "show"
    DROP = "drop"


def models_command(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    name: Annotated[str | None, typer.Argument(help="Of which model.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Of make and copy: NAME=VALUE, a setting of its own; may come again."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="Of copy: the model to copy; without it the service's own."),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            min=0, help="Of copy: a kept version of that model; without it, where it stands."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Of drop and copy: do not ask.")] = False,
    url: Url = None,
    as_document: AsDocument = False,
) -> None:
    """List, make, copy, show or drop the named models of a service.

    Example: gmr models make pump-7 --set preset=flat --set n_components=20

    Example: gmr ingest pump-7.csv --model pump-7

    Example: gmr models copy pump-8 --from pump-7 --set max_classes=50

    Each has a stream, versions and a dashboard of its own, at /models/NAME/; one that is quiet
    costs nothing. To drop one takes down all that is kept of it; a copy replaces what a model of
    its name holds. Both ask before.
    """
    with GMRClient(url) as client:
        if action is Action.LIST:
            _list(client, as_document)
            return
        if name is None:
            raise InputError(f"`gmr models {action.value}` needs the name of a model. Add it.")
        if action is Action.MAKE:
            made = client.make_model(name, assignments(set_ or []))
            _tell(
                vars(made), as_document, f"Model {made.name} is there, with {_own(made.settings)}."
            )
        elif action is Action.COPY:
            copied = _copy(client, source, name, yes, assignments(set_ or []), version)
            where = "where it stands" if version is None else f"its version {version}"
            said = f"Model {name} is a copy of {source or 'the own model'}, from {where}."
            _tell(vars(copied), as_document, said)
        elif action is Action.SHOW:
            shown = client.named_model(name)
            lines = vars(shown) | {"settings": _own(shown.settings), "made": _when(shown.made)}
            told = [f"{key:16} {'-' if of is None else of}" for key, of in lines.items()]
            _tell(vars(shown), as_document, "\n".join(told))
        else:
            question = f"Drop the model {name} and all that is kept of it?"
            if not yes and not on_terminal():
                raise InputError(
                    f"Nobody can be asked whether to drop the model {name}, because standard input "
                    f"is no terminal. Expected a yes. Add --yes."
                )
            if not yes and not typer.confirm(question):
                raise typer.Exit(1)
            client.take_down_model(name)
            _tell({"name": name, "state": "leaving"}, as_document, f"Model {name} is taken down.")


def _copy(
    client: GMRClient,
    source: str | None,
    name: str,
    yes: bool,
    settings: dict[str, str],
    version: int | None,
) -> NamedModel:
    try:
        return client.copy_model(source, name, replace=yes, settings=settings, version=version)
    except HasLearned as error:
        if not on_terminal():
            raise
        holds = counted(int(str(error.context["samples_seen"])), "learned sample")
        typer.confirm(
            f"The model {name} is there, with {holds}. Drop all that it holds for the copy?",
            abort=True,
            err=True,
        )
        return client.copy_model(source, name, replace=True, settings=settings, version=version)


def _own(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


def _when(moment: float) -> str:
    return time.strftime("%d %b %Y %H:%M", time.localtime(moment))


def _tell(document: object, as_document: bool, text: str) -> None:
    if as_document:
        print_json(document)
    else:
        typer.echo(text)


COLUMNS: Final = {
    "name": "left",
    "state": "left",
    "phase": "left",
    "samples": "right",
    "newest sample": "left",
    "boundaries": "right",
    "newest boundary": "left",
    "severity": "right",
    "feature": "left",
}
"""Of the list, and on which side each stands."""


def _list(client: GMRClient, as_document: bool) -> None:
    models = client.models(detail=True)
    if as_document:
        print_json({"models": [asdict(model) for model in models]})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, side in COLUMNS.items():
        table.add_column(column, overflow="fold", justify=cast(JustifyMethod, side))
    for model in models:
        table.add_row(*_row(model))
    if models:
        Console().print(table, markup=False)
    typer.echo(counted(len(models), "named model"))


def _row(model: ListedModel) -> list[str]:
    """The cells of a model; a dash is what nobody knows, or what there is none of."""
    state = model.state if model.error is None else f"{model.state}: {model.error}"
    known = model.detail
    if known is None:
        return [model.name, state, *["-"] * (len(COLUMNS) - 2)]
    found, what = known.boundary, ["-", "-", "-"]
    if found is not None:
        feature = found.feature_name if found.feature_name is not None else found.feature
        what = [
            _when(found.time) + (" (dropped)" if found.dropped else ""),
            "-" if found.severity is None else f"{found.severity:.0%}",
            "-" if feature is None else str(feature),
        ]
    return [
        model.name,
        state,
        known.phase or "-",
        "-" if known.samples_seen is None else f"{known.samples_seen:,}",
        "-" if known.newest_sample_time is None else _when(known.newest_sample_time),
        "-" if known.boundaries is None else str(known.boundaries),
        *what,
    ]
