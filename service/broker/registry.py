"""The named models of a service: which there are, and what was set for each.

A service has one model of its own, the default one, and any number of named models beside it. They
are registered with the default model's keys; everything else of one lies under keys of its own
(`Keys.named`), as if it were alone.

Rules of this module:

1. Registering is one script, so that two who register a name agree on what was set for it.
2. A model that is to go is marked first. The trainer, who alone may write to its folder, takes
   down what it has kept and then forgets the name.
3. What lies in a stream when its model is made was sent to another one, which is gone. The last id
   of that is registered with the model, by whoever registers it first, and the trainer drops what
   is not newer before it reads. So nothing is dropped that was accepted for the model itself.
4. Whoever changes the register rings: the trainer reads the register when the doorbell rings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Self

import orjson

from core.errors import InvalidSettings
from service.broker.branch import FIRST_ID
from service.broker.connection import SyncClient, node_of
from service.broker.entries import next_id
from service.broker.keys import GROUP, Keys
from service.settings import OF_A_MODEL, Settings

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
"""Names of models. They begin with a letter or digit, so that none is `..` or an option."""

DOORBELL_LENGTH: Final = 10_000


@dataclass(frozen=True)
class NamedModel:
    """What is registered of a model.

    Arguments:
        name: Unique within the service.
        settings: What was set for it; the rest is as for the default model.
        made: When, in seconds since 1970.
        made_by: Name of the key that made it; `anybody` where keys are not required.
        leaving: Whether it is being taken down.
        after: The last entry that its stream had when it was made, sent to one of the same name
            that is gone; `0-0` where there was none.
        more: What a later release has registered beside these; kept as it is.
        text: As Redis has it, which another release may have written; None where it never had.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    made: float = 0.0
    made_by: str = ""
    leaving: bool = False
    after: str = FIRST_ID
    more: Mapping[str, Any] = field(default_factory=dict)
    text: bytes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def made_now(
        cls, name: str, settings: Mapping[str, Any], made_by: str, after: str = FIRST_ID
    ) -> Self:
        """A model that nobody has registered yet."""
        return cls(name, dict(settings), time.time(), made_by, after=after)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The inverse of `to_json`."""
        values: dict[str, Any] = orjson.loads(data)
        known = {one.name for one in fields(cls)} - {"more", "text"}
        more = {name: values.pop(name) for name in [*values] if name not in known}
        return cls(**values, more=more, text=data)

    def to_json(self) -> bytes:
        """What Redis holds."""
        values = asdict(self)
        del values["more"], values["text"]
        if self.after == FIRST_ID:  # as a release that does not know it has it
            del values["after"]
        return orjson.dumps(values | dict(self.more))

    def settings_in(self, service: Settings) -> Settings:
        """Its settings within a service.

        Raises:
            InvalidSettings: A later release made it, and by what this one does not know; or one of
                its settings will not do.
        """
        # What is not known may decide on what it learns.
        unknown = sorted({*self.more} | {*self.settings} - OF_A_MODEL)
        if unknown:
            raise InvalidSettings(
                f"The model {self.name!r} was registered with {', '.join(unknown)[:200]}, which "
                f"this release does not know: a later one made it. Nothing is learned of it, and "
                f"nothing is lost. Start that release, or a later one.",
                unknown=unknown,
            )
        return service.for_model(self.name, self.settings)

    def left(self) -> Self:
        """The same, being taken down."""
        return replace(self, leaving=True)


# Gives what is registered under the name afterwards; nothing where there are too many already. A
# full Redis refuses only the first write of a script, if it needs memory.
REGISTER: Final = """
local models, doorbell = KEYS[1], KEYS[2]
local name, data, most, length = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local there = redis.call('HGET', models, name)
if there then return there end
if redis.call('HLEN', models) >= most then return false end
redis.call('HSET', models, name, data)
redis.call('XADD', doorbell, 'MAXLEN', '~', length, '*', 'register', name)
return data
"""

# Marks a model, if it is there as it was seen.
TAKE_DOWN: Final = """
local models, doorbell = KEYS[1], KEYS[2]
local name, seen, data, length = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HGET', models, name) ~= seen then return 0 end
redis.call('HSET', models, name, data)
redis.call('XADD', doorbell, 'MAXLEN', '~', length, '*', 'register', name)
return 1
"""

# The trainer's: only whoever holds the default model may forget one.
FORGET: Final = """
local fence, models = KEYS[1], KEYS[2]
local token, name = ARGV[1], ARGV[2]
if redis.call('GET', fence) ~= token then return redis.error_reply('LEASELOST') end
redis.call('HDEL', models, name)
"""


def read_register(client: SyncClient, keys: Keys) -> dict[str, NamedModel]:
    """All named models, by name.

    Arguments:
        keys: Of the default model.
    """
    found: Any = client.hgetall(keys.models)
    models = map(NamedModel.from_json, found.values())
    return {model.name: model for model in sorted(models, key=lambda model: model.made)}


def forget(client: SyncClient, keys: Keys, token: str, name: str) -> None:
    """Take down everything that Redis has of a model, its name last.

    Arguments:
        keys: Of the default model.
        token: Of the lease of the default model.
    """
    for key in keys_of(client, keys.named(name)):
        client.unlink(key)
    client.register_script(FORGET)(keys=[keys.fence, keys.models], args=[token, name])


def forget_older(client: SyncClient, keys: Keys, model: NamedModel) -> None:
    """Drop what was sent to a model before it was made; nothing of its own, however often.

    Arguments:
        keys: Of the model.
    """
    if model.after != FIRST_ID:
        client.xtrim(keys.input, minid=next_id(model.after), approximate=False)


def keys_of(client: SyncClient, keys: Keys) -> Iterator[bytes]:
    """Every key that Redis has of a model."""
    node = node_of(client, keys.input)  # the others of a cluster need not answer
    named: dict[str, Any] = {} if node is None else {"target_nodes": node}
    yield from client.scan_iter(match=_escaped(keys.prefix) + "*", count=1000, **named)


class Doorbell:
    """The trainer's end of the doorbell; `service.broker.reader.Readable`.

    Arguments:
        client: Connection to Redis.
        keys: Of the default model.
    """

    mean_bytes: float = 100.0

    def __init__(self, client: SyncClient, keys: Keys) -> None:
        self.stream = keys.doorbell
        self._client = client
        self._ready = False

    def prepare(self) -> None:
        """Let the group be there."""
        if not self._ready:
            make_group(self._client, self.stream, "$")
            self._ready = True

    def took(self, rows: Any) -> list[str]:
        """The names of models that readers want something of; "" for a change of the register."""
        if rows:
            self._client.xack(self.stream, GROUP, *(id for id, _ in rows))
        return [
            fields.get(b"model", b"").decode("utf-8", "replace") for _, fields in rows if fields
        ]

    def missed(self, *, counts: bool) -> None:
        """The group may be gone."""
        self._ready = False


class Unwatched:
    """The stream of a model that nobody has loaded: what comes is noticed, and read again later.

    Arguments:
        client: Connection to Redis.
        keys: Of the model.
    """

    mean_bytes: float = 1000.0

    def __init__(self, client: SyncClient, keys: Keys) -> None:
        self.stream = keys.input
        self._client = client
        self._ready = False

    def prepare(self) -> None:
        """Let the group be there."""
        if not self._ready:
            make_group(self._client, self.stream, "0")
            self._ready = True

    def took(self, rows: Any) -> list[bytes]:
        """Ids of what came."""
        return [id for id, _ in rows]

    def missed(self, *, counts: bool) -> None:
        """The group may be gone."""
        self._ready = False


def make_group(client: SyncClient, stream: str, start: str) -> None:
    """Let the trainer's group of a stream be there, and the stream.

    Arguments:
        start: Where it stands if it is made.
    """
    try:
        client.xgroup_create(stream, GROUP, start, mkstream=True)
    except Exception as error:
        if "BUSYGROUP" not in str(error):
            raise


def _escaped(text: str) -> str:
    """A text as a pattern of Redis that matches nothing else."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)
