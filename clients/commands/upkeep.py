"""What an operator does from outside: `gmr doctor`, `backup`, `restore`, `rebuild`, `reset`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from clients.commands.assignments import assignments
from clients.commands.options import AsDocument, Url
from clients.commands.versions import on_terminal
from clients.http.client import GMRClient
from clients.http.errors import InputError
from core.counted import counted
from service.settings import Settings

DataDir = Annotated[
    str | None,
    typer.Option(help="Folder of the service, as `gmr serve` takes it.", show_default=False),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(help="Of a Redis of one's own.", show_default=False, metavar="URL"),
]


def doctor_command(
    data_dir: DataDir = None, redis_url: RedisUrl = None, as_json: AsDocument = False
) -> None:
    """Look a service over, running or stopped; say what wants attention, and what to do.

    Example: gmr doctor --data-dir /srv/gmr

    It changes nothing. Of an embedded Redis that is stopped it reads a copy. Exit status 0: all is
    well; 1: something wants attention.
    """
    from service.upkeep.doctor import examine

    report = examine(Settings.load({"data_dir": data_dir, "redis_url": redis_url}))
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    else:
        for finding in report.findings:
            mark = "well" if finding.advice is None else "LOOK"
            typer.echo(f"{mark}  {finding.subject}: {finding.found}")
            if finding.advice is not None:
                typer.echo(f"      -> {finding.advice}")
        versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
        typer.echo(f"      versions: {versions}")
    raise typer.Exit(0 if report.well else 1)


def backup_command(
    target: Annotated[Path, typer.Argument(help="A folder, or a new .tar.")],
    data_dir: DataDir = None,
) -> None:
    """Write a service, its models and their stream, into one file.

    Example: gmr backup /backups --data-dir /srv/gmr

    Before, every checkpoint and the stream are read; after, the file is read back. The service may
    run; what it accepts meanwhile may or may not be in the file. One whose stream is in a Redis of
    your own is refused.
    """
    from service.upkeep.backup import back_up

    backup = back_up(Settings.load({"data_dir": data_dir}), target)
    typer.echo(f"{backup.path}: {_described(backup.models)}, {counted(backup.nbytes, 'byte')}")


def restore_command(
    source: Annotated[Path, typer.Argument(help="A file that `gmr backup` wrote.")],
    data_dir: DataDir = None,
) -> None:
    """Bring a service back from a backup, into an empty data dir.

    Example: gmr restore /backups/gmr-20270301-040000.tar --data-dir /srv/gmr

    Then start it with the settings that it had. Start the original no more: the two would learn
    different things under one name.
    """
    from service.upkeep.backup import bring_back

    settings = Settings.load({"data_dir": data_dir})
    if settings.checkpoints_in_store:
        raise InputError(
            f"GMR_CHECKPOINTS names {settings.checkpoints}, where a start would look before the "
            f"data dir. Unset it, restore, then start with a prefix of that store in which there "
            f"is nothing yet: the checkpoints are put there."
        )
    backup = bring_back(source, settings.data_dir)
    typer.echo(
        f"{settings.data_dir}: {_described(backup.models)}, {counted(backup.nbytes, 'byte')}"
    )
    if backup.model != settings.model:
        typer.echo(f"Its own model is named {backup.model}: start it with --model {backup.model}.")


def rebuild_command(
    model: Annotated[
        str | None,
        typer.Option(help="Name of a named model; without it the service's own."),
    ] = None,
    data_dir: DataDir = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new file for the checkpoint of what was made.", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="NAME=VALUE, a setting that is to be another one; may come again."
        ),
    ] = None,
    as_json: AsDocument = False,
) -> None:
    """Make a model again from its archive; say whether it is the same, bit for bit.

    Example: gmr rebuild --data-dir /srv/gmr --out again.safetensors

    Example: gmr rebuild --set preset=flat --set n_components=200 --out flat.safetensors

    A trainer keeps an archive while GMR_ARCHIVE_MIB is set. Every entry in it is learned once more,
    and the state is compared with all checkpoints that are kept. With --set it is learned with
    other settings, and compared with nothing. Nothing of the service is changed; it may run. Exit
    status 0: all that this code has learned is the same, and all that was kept was learned; what
    other code has learned may differ, and that is said; 1: something is not, or cannot be read.
    """
    from service.upkeep.rebuild import rebuild, set_up

    if out is not None and out.exists():
        raise InputError(f"{out} is there already. Name a new file.")
    changes = assignments(set_ or [])
    if changes and out is None:
        raise InputError("With --set another model is made. Name a new file for it by --out.")
    settings = Settings.load({"data_dir": data_dir})
    if model is not None:
        settings = settings.for_model(model, {})
    set_up(settings)
    done = rebuild(settings, changes)
    if out is not None:
        done.write(out)
    facts = done.to_json()
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        for line in done.described():
            typer.echo(line)
        if out is not None:
            where = " of a service or a named model with these settings" if changes else ""
            typer.echo(f"{out}: the checkpoint; `PUT /model/checkpoint`{where} takes it.")
    raise typer.Exit(0 if done.well else 1)


def reset_command(
    model: Annotated[
        str | None,
        typer.Option(help="Name of a named model; without it the service's own."),
    ] = None,
    url: Url = None,
    data_dir: Annotated[
        str | None,
        typer.Option(help="Of a service that is stopped: its folder.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let a model begin anew, as if it had learned nothing.

    Example: gmr reset --model pump-7

    Example: gmr reset --data-dir /srv/gmr

    A service that runs goes on with a fresh model, and `gmr rollback` brings a kept version back;
    until the fresh one has learned its first batch, the one before answers.
    With --data-dir the service is stopped, and all that was kept of the model is deleted: its
    checkpoints, its stream, its events. Other models, keys and the audit trail stay.
    """
    what = f"model {model}" if model else "the service's own model"
    if data_dir is None:
        from service.upkeep.reset import fresh

        with GMRClient(url, model=model) as client:
            facts = client.model()
            _confirm(
                f"Let {what}, which has seen {counted(facts.samples_seen, 'sample')}, begin anew?",
                yes,
            )
            client.restore(fresh(client.checkpoint()))
            client.wait_until_learned()
        typer.echo(f"Begun anew: {what}. `gmr versions` lists what can be brought back.")
        return

    from service.upkeep.reset import forget_model

    _confirm(f"Delete all that {data_dir} and its Redis hold of {what}?", yes)
    n_keys = forget_model(Settings.load({"data_dir": data_dir}), model)
    typer.echo(f"Forgotten: {what}, its checkpoints and {counted(n_keys, 'key')} of Redis.")


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not on_terminal():
        raise InputError(
            "Nobody can be asked whether the model is to begin anew, because standard input is no "
            "terminal. Expected a yes. Add --yes."
        )
    if not typer.confirm(question):
        raise typer.Exit(1)


def _described(models: Sequence[Mapping[str, Any]]) -> str:
    """The models of a backup, in words."""
    parts = []
    for one in models:
        held = "no checkpoint" if one["version"] is None else f"version {one['version']}"
        name = f"model {one['name']}" if one["name"] else "the service's own model"
        parts.append(f"{name} ({held}, {counted(one['beyond'], 'entry', 'entries')} beyond it)")
    return ", ".join(parts)
