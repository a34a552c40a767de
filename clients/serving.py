"""`gmr serve`, `gmr trainer`, `gmr api`: every setting is a flag of theirs.

The flags are made from the fields of `Settings`, so that none is missing here and
each is explained where it is declared. Values are checked there too: whether a
value comes from a flag, a variable or a file, the message is the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

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


def _serve(settings: Settings) -> int:
    """Run the whole service: Redis, trainer and API.

    Without --redis-url it brings a Redis of its own, kept in the data dir. Ctrl-C or SIGTERM
    ends it in order: what was accepted is learned and saved.

    Example: gmr serve --port 8000 --data-dir ./gmr-data
    """
    from service.run import serve

    return serve(settings)


def _trainer(settings: Settings) -> int:
    """Run the trainer alone: the one process that learns. Needs --redis-url.

    Example: gmr trainer --redis-url redis://redis.internal:6379
    """
    from service.trainer import main

    return main(settings)


def _api(settings: Settings) -> int:
    """Run an API process alone; start as many as you like. Needs --redis-url.

    Example: gmr api --redis-url redis://redis.internal:6379 --host 0.0.0.0 --port 8000
    """
    from service.api.app import main

    return main(settings)


def compile_command() -> None:
    """Compile the detector's loops now, and keep them beside the package.

    Otherwise the first trainer does it when it starts, which takes a processor some seconds;
    where the package cannot be written, as in a container, every trainer would.

    Example: gmr compile
    """
    from service.rehearsal import rehearse_now

    rehearse_now()


def version_command() -> None:
    """Print the versions of what is installed.

    Example: gmr version
    """
    from clients.environment import versions

    for name, version in versions().items():
        typer.echo(f"{name} {version}")


def _command(run: Callable[[Settings], int]) -> Callable[..., None]:
    """A typer-ready function that collects every setting as a flag, then calls `run`."""

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
    parameters += [_setting(name, Settings.model_fields[name]) for name in names]
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
        metavar=_metavar(field.annotation),
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


def _metavar(annotation: Any) -> str:
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


serve_command = _command(_serve)
trainer_command = _command(_trainer)
api_command = _command(_api)
