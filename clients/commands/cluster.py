"""`gmr cluster`: trainers over many machines, by Ray."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument
from clients.extras import naming_the_extra
from clients.http.errors import InputError
from service.settings import Settings

DEFAULT_BUCKETS = 8

Address = Annotated[
    str | None,
    typer.Option(help="Of Ray's head; without it what RAY_ADDRESS says, or this machine's."),
]


class Action(StrEnum):
    """What is asked for."""

    UP = "up"
    STATUS = "status"
    MODELS = "models"
    DRAIN = "drain"
    MOVE = "move"
    DOWN = "down"


TAKES: dict[Action, tuple[str, ...]] = {Action.DRAIN: ("NODE",), Action.MOVE: ("BUCKET", "NODE")}
"""What arguments an action takes; models takes any number, others none."""

AS_JSON = (Action.STATUS, Action.MODELS)


def cluster_command(
    action: Annotated[Action, typer.Argument(help="up, status, models, drain, move or down.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Of models: names. Of drain: a node. Of move: a bucket and a node."),
    ] = None,
    address: Address = None,
    buckets: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Of up: into how many services models are divided."),
    ] = None,
    standby: Annotated[
        int, typer.Option(min=0, max=3, help="Of up: hosts of each bucket that stand by.")
    ] = 0,
    local: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="Of up: so many nodes on this machine, until Ctrl-C."),
    ] = None,
    accept_gcs_in_memory: Annotated[
        bool,
        typer.Option(
            "--accept-gcs-in-memory", help="Of up: take a head that forgets all when it dies."
        ),
    ] = False,
    as_json: AsDocument = False,
) -> None:
    """Run trainers over many machines by Ray: up, status, models, drain, move, down.

    Example: gmr cluster up --local 3

    Example: gmr cluster move 7 10.0.0.5

    Settings are those of GMR_* variables. Models are divided into buckets, each a service
    GMR_MODEL-bNNN with hosts of its own, by their names alone. Begun by up are the hosts that are
    missing; status says of every host where it is and what it does (exit status 1: a bucket has
    none that leads); models says which service a model belongs to, without names of all there are,
    and `gmr api --cluster true` answers for all of them; drain lets no host be on a node; move lets
    a bucket be led on another node, without a batch refused; down ends all in order.
    """
    given = arguments or []
    _check_arguments(action, given)
    options = {
        "--buckets": buckets is not None,
        "--standby": standby > 0,
        "--local": local is not None,
        "--accept-gcs-in-memory": accept_gcs_in_memory,
    }
    if action is not Action.UP:
        _refuse(options, f"`gmr cluster up`, not of {action}")
    if action not in AS_JSON:
        _refuse({"--json": as_json}, f"`gmr cluster status` and `models`, not of {action}")
    if local is not None:
        _refuse({"--address": address is not None}, "a Ray that runs, and --local makes its own")
    with naming_the_extra("gmr cluster", "cluster"):
        match action:
            case Action.UP:
                _up(address, buckets, standby, local, accept_gcs_in_memory)
            case Action.STATUS:
                _status(address, as_json)
            case Action.MODELS:
                _models(given, as_json)
            case Action.DRAIN:
                with _fleet(address) as (fleet, _):
                    _note(f"Beginning hosts elsewhere, one by one, then ending those on {given[0]}")
                    moved = fleet.drain(given[0])
                ended = ", ".join(moved) or "none was there"
                typer.echo(f"Ended on {given[0]}, with others elsewhere in their place: {ended}")
            case Action.MOVE:
                if not given[0].isdigit():
                    raise InputError(f"The bucket is {given[0]!r}; expected its number.")
                with _fleet(address) as (fleet, _):
                    _note(f"Waiting for a host of bucket {given[0]} on {given[1]} to be ready")
                    seconds = fleet.move(int(given[0]), given[1])
                typer.echo(f"Bucket {given[0]} is led on {given[1]}; {seconds:.1f} s without.")
            case Action.DOWN:
                with _fleet(address) as (fleet, _):
                    _note("Ending hosts in order, which takes two minutes at most")
                    ended = fleet.down()
                typer.echo(f"{len(ended)} hosts ended.")


def _check_arguments(action: Action, given: list[str]) -> None:
    takes = TAKES.get(action, ())
    if action is not Action.MODELS and len(given) != len(takes):
        raise InputError(
            f"gmr cluster {action} was given {len(given)} arguments ({' '.join(given) or 'none'}); "
            f"expected {' '.join(takes) or 'none'}. See gmr cluster --help."
        )


def _refuse(options: dict[str, bool], of: str) -> None:
    for option, given in options.items():
        if given:
            raise InputError(f"{option} is of {of}. Leave it out.")


def _note(what: str) -> None:
    """Say what takes a while, where it is not in the way of an answer."""
    typer.echo(f"{what} ...", err=True)


def _up(
    address: str | None, buckets: int | None, standby: int, local: int | None, accept_gcs: bool
) -> None:
    from service.cluster.fleet import Fleet
    from service.cluster.local import asked_to_end, attach, local_cluster, tend
    from service.cluster.plan import check
    from service.logs import configure_logs
    from service.supervisor.run import free_port

    def begin(settings: Settings) -> Any:
        n_buckets = _agreed(settings, buckets)
        fleet = Fleet(settings, n_buckets)
        begun = fleet.up(standby)
        typer.echo(f"{n_buckets} buckets; begun: {', '.join(begun) or 'none, all are there'}")
        return fleet

    settings = Settings.load()
    if local is None:
        check(settings, os.environ, accept_gcs=accept_gcs)
        with _unless_silent():
            attach(address, settings.model)
            begin(settings)
        return
    settings = settings.model_copy(update={"port": free_port(settings.host, settings.port)})
    _note(f"Beginning {local} nodes of Ray on this machine, which takes some seconds for each")
    with local_cluster(settings, local) as made, asked_to_end() as asked:
        own = made.settings
        configure_logs(own, "cluster")
        fleet = begin(own)
        typer.echo("Hosts import for some seconds, then lead: gmr cluster status")
        typer.echo(f"In another terminal, first: export {_variables(settings, made)}")
        typer.echo(f"API: {own.url(own.port)}/models/NAME, for all models")
        typer.echo("Ctrl-C ends all of it.")
        try:
            tend(made, asked)
        finally:
            _note("Ending hosts in order")
            fleet.down()


def _variables(given: Settings, made: Any) -> str:
    """By what other commands find a cluster on this machine: what was not given to it."""
    names = {"RAY_ADDRESS": made.address}
    if made.redis is not None:
        names["GMR_REDIS_URL"] = made.redis.url
    if made.settings.checkpoints != given.checkpoints:
        names["GMR_CHECKPOINTS"] = made.settings.checkpoints
    names["GMR_MODEL"] = given.model
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in names.items())


def _status(address: str | None, as_json: bool) -> None:
    with _fleet(address) as (fleet, n_buckets):
        rows = fleet.status()
    if as_json:
        print_json([vars(row) for row in rows])
    else:
        table = Table("host", "bucket", "node", "does", "process", box=box.SIMPLE_HEAD)
        for row in rows:
            does = row.phase if row.error is None else f"{row.phase}: {row.error}"
            node = f"{row.node[:8]} ({row.address})" if row.node else ""
            table.add_row(row.name, str(row.bucket), node, does, str(row.pid or ""))
        Console().print(table, markup=False)
    led = {row.bucket for row in rows if row.phase == "leading"}
    unled = [bucket for bucket in range(n_buckets) if bucket not in led]
    elsewhere = _held(unled)
    if elsewhere:
        typer.echo(
            f"Led by no host of this Ray, though a trainer has the lease: bucket "
            f"{_listed(elsewhere)}. That may be a host of another Ray, or one that has just died, "
            f"whose lease runs out soon. Hosts that stand by here lead when it is ended.",
            err=True,
        )
    if missing := [bucket for bucket in unled if bucket not in elsewhere]:
        typer.echo(
            f"Led by no host: bucket {_listed(missing)}. Hosts that start lead soon; those that "
            f"are missing are begun by `gmr cluster up`.",
            err=True,
        )
    raise typer.Exit(1 if unled else 0)


def _held(buckets: list[int]) -> list[int]:
    """Those of some buckets of which a trainer has the lease."""
    from service.cluster.plan import held

    settings = Settings.load()
    with _redis(settings) as client:
        return held(client, settings.model, buckets)


def _listed(buckets: list[int]) -> str:
    return ", ".join(map(str, buckets))


def _models(names: list[str], as_json: bool) -> None:
    from service.broker.keys import Keys
    from service.broker.registry import NAME, read_register
    from service.cluster.buckets import bucket_of, service_of

    settings = Settings.load()
    n_buckets = _begun(settings)
    if bad := [name for name in names if not NAME.fullmatch(name)]:
        raise InputError(
            f"{bad[0]!r} cannot be the name of a model; expected 1 to 64 letters, digits, dots, "
            f"underscores and hyphens, the first a letter or digit. Correct the name."
        )
    if not names:
        with _redis(settings) as client:
            services = (service_of(settings.model, bucket) for bucket in range(n_buckets))
            names = sorted(name for one in services for name in read_register(client, Keys(one)))
    found = [(name, bucket_of(name, n_buckets)) for name in names]
    rows = [(name, bucket, service_of(settings.model, bucket)) for name, bucket in found]
    if as_json:
        print_json([{"name": name, "bucket": at, "service": of} for name, at, of in rows])
        return
    for name, bucket, service in rows:
        typer.echo(f"{name}: bucket {bucket}, service {service}")
    if not rows:
        typer.echo("The cluster has no named models yet. PUT /models/NAME makes one.", err=True)


def _agreed(settings: Settings, buckets: int | None) -> int:
    from service.cluster.plan import agree

    with _redis(settings) as client:
        return agree(client, settings.model, buckets, DEFAULT_BUCKETS)


def _begun(settings: Settings) -> int:
    """Buckets of the cluster that there is: to ask after it must not fix their number."""
    from service.cluster.plan import begun

    with _redis(settings) as client:
        n_buckets = begun(client, settings.model)
    if n_buckets is None:
        raise InputError(
            f"No cluster {settings.model!r} was begun on this Redis. Expected one. Begin it by "
            f"`gmr cluster up`, or name another by GMR_REDIS_URL and GMR_MODEL."
        )
    return n_buckets


@contextmanager
def _redis(settings: Settings) -> Iterator[Any]:
    from service.broker.connection import (
        connect,
        identity_of,
        is_refusal,
        is_transient,
        refused,
        unavailable,
    )

    address = settings.redis_address()
    if address is None:
        raise InputError(
            "No Redis is named; expected that of the cluster. Set GMR_REDIS_URL, which "
            "`gmr cluster up --local` prints."
        )
    try:
        with connect(address, identity=identity_of(settings)) as client:
            yield client
    except Exception as error:
        if is_refusal(error):
            raise refused(error) from error
        if is_transient(error):
            raise unavailable(error) from error
        raise


@contextmanager
def _fleet(address: str | None) -> Iterator[tuple[Any, int]]:
    """The hosts of the cluster, and how many buckets it has."""
    from service.cluster.fleet import Fleet
    from service.cluster.local import attach

    settings = Settings.load()
    n_buckets = _begun(settings)
    with _unless_silent():
        attach(address, settings.model)
        yield Fleet(settings, n_buckets), n_buckets


@contextmanager
def _unless_silent() -> Iterator[None]:
    """End this process where Ray does not answer: its own end would wait for the same answer."""
    from service.cluster.answer import RaySilent
    from service.ending import end_with

    try:
        yield
    except RaySilent as error:
        typer.echo(str(error), err=True)
        end_with(lambda: 1)
