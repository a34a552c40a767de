"""`gmr serve`, `gmr trainer`, `gmr api`: every setting is a flag of theirs.

The flags are made from the fields of `Settings`, so that none is missing here (but for
those that a process does not read) and each is explained where it is declared. Values
are checked there too: whether a value comes from a flag, a variable or a file, the
message is the same.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from core.errors import InvalidSettings
from service.settings import Settings

_COMMON = (
    "host",
    "port",
    "redis_url",
    "data_dir",
    "device",
    "preset",
    "n_components",
    "n_features",
    "detector",
    "model",
    "seed",
    "log_level",
)
_MORE = "More settings"

_OF_SERVE = ("redis_binary", "redis_maxmemory_mib")
"""Settings that only the process with the embedded Redis reads."""

_OF_READERS = ("cluster",)
"""Settings that only an API process alone reads."""

_OF_API = (
    "host",
    "port",
    "dedupe_ttl_s",
    "dedupe_mib",
    "max_body_bytes",
    "max_checkpoint_bytes",
    "max_sample_n",
    "max_backlog",
    "api_threads",
)
"""Settings that only an API process reads."""

NOT_FLAGS: Mapping[str, frozenset[str]] = {
    "serve": frozenset(_OF_READERS),
    "trainer": frozenset((*_OF_SERVE, *_OF_API, *_OF_READERS)),
    "api": frozenset(_OF_SERVE),
}
"""Command -> settings that it does not read. As variables and in files they are legal there, too,
because processes share them; a flag that did nothing would be a lie."""


def _serve(settings: Settings) -> int:
    """Run the whole service: Redis, trainer and API.

    Without --redis-url it brings a Redis of its own, kept in the data dir. Ctrl-C or SIGTERM
    ends it in order: what was accepted is learned and saved.

    Example: gmr serve --port 8000 --data-dir ./gmr-data
    """
    from service.supervisor.run import serve

    return serve(settings)


def _trainer(settings: Settings) -> int:
    """Run the trainer alone: the one process that learns. Needs --redis-url.

    Example: gmr trainer --redis-url redis://redis.internal:6379
    """
    settings.redis_address_of_ones_own()  # before what takes seconds to import
    from service.ending import end_with
    from service.trainer.host import main

    end_with(lambda: main(settings))


def _api(settings: Settings) -> int:
    """Run an API process alone; start as many as you like. Needs --redis-url.

    Example: gmr api --redis-url redis://redis.internal:6379 --host 0.0.0.0 --port 8000

    Example: gmr api --cluster true --redis-url redis://redis.internal:6379
    """
    settings.redis_address_of_ones_own()
    from service.api.app import main

    return main(settings)


def compile_command() -> None:
    """Compile the detector's loops now, and keep them beside the package.

    Otherwise the first trainer does it when it starts, which takes a processor some seconds;
    where the package cannot be written, as in a container, every trainer would.

    Example: gmr compile
    """
    from service.trainer.warm_up import warm_up_in_turn

    warm_up_in_turn()


def no_such_flag(command: str, flag: str) -> InvalidSettings:
    """The error for a flag that `command` does not have.

    Example:
        >>> print(no_such_flag("serve", "--prot"))
        --prot is no setting. Did you mean --port? `gmr serve --help` lists them all.
    """
    name = flag.lstrip("-").replace("-", "_")
    if name in Settings.model_fields:
        return InvalidSettings(
            f"{flag} does nothing for `gmr {command}`, which does not read it. Leave it out; "
            f"`gmr {command} --help` lists what there is."
        )
    flags = [f"--{one.replace('_', '-')}" for one in Settings.model_fields]
    close = difflib.get_close_matches(flag, flags, n=1)
    hint = f"Did you mean {close[0]}?" if close else "Remove it, or check its spelling."
    return InvalidSettings(f"{flag} is no setting. {hint} `gmr {command} --help` lists them all.")


def _command(
    run: Callable[[Settings], int], without: frozenset[str] = frozenset()
) -> Callable[..., None]:
    """A typer-ready function that collects settings as flags, then calls `run`.

    Arguments:
        run: What the command does.
        without: Settings that it does not read.
    """

    def command(config: Path | None, show_config: bool, **flags: str | None) -> None:
        settings = Settings.load(flags, config=config)
        if show_config:
            _print_config(settings)
            return
        raise typer.Exit(run(settings))

    parameters = [
        _parameter(
            "config",
            Path | None,
            typer.Option(help="TOML file with settings; GMR_CONFIG names it otherwise."),
            None,
        ),
        _parameter(
            "show_config",
            bool,
            typer.Option(
                "--show-config", help="Print every setting and where it came from, then exit."
            ),
            False,
        ),
    ]
    names = (*_COMMON, *(name for name in Settings.model_fields if name not in _COMMON))
    parameters += [
        _setting(name, Settings.model_fields[name]) for name in names if name not in without
    ]
    command.__doc__ = run.__doc__
    # typer reads both; the values of `flags` are told apart by name only.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _setting(name: str, field: FieldInfo) -> inspect.Parameter:
    default = "" if field.default is None else f" (default {field.default})"
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{field.description}{default}",
        metavar=_metavar(name, field.annotation),
        show_default=False,
        rich_help_panel=None if name in _COMMON else _MORE,
    )
    # Text, whatever the setting's type: `Settings` reads and checks it.
    return _parameter(name, str | None, option, None)


def _parameter(name: str, kind: Any, option: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def _metavar(name: str, annotation: Any) -> str:
    if name.endswith("_secret"):
        return "SECRET"
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType]
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    names = {"SecretStr": "URL", "Path": "PATH", "str": "TEXT", "int": "N", "float": "NUMBER"}
    return names.get(getattr(kinds[0], "__name__", ""), "VALUE")


def _print_config(settings: Settings) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "value", "from", box=None, pad_edge=False)
    for row in settings.describe():
        table.add_row(row.name, row.value, row.source)
    console = Console()
    # Piped into a file, a row stays on one line however long its path is.
    console.print(table, soft_wrap=True, width=None if console.is_terminal else 500)


serve_command = _command(_serve, NOT_FLAGS["serve"])
trainer_command = _command(_trainer, NOT_FLAGS["trainer"])
api_command = _command(_api, NOT_FLAGS["api"])
