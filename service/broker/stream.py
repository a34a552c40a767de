"""The API's end of Redis, of one model.

What is sent goes through `append`, `append_labels`, `append_control` and `requeue`; `reports` has
what the trainer tells, `transfers` the checkpoints that go to and fro.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from service.broker.appender import Appender
from service.broker.caller import READ_S
from service.broker.connection import AsyncClient, connect_async, examiner_of, identity_of
from service.broker.disk import room_of
from service.broker.records import Counts
from service.broker.reports import Reports
from service.broker.transfers import Transfers
from service.settings import Settings

# A full Redis refuses only the first write of a script, if it needs memory: this one needs none.
COUNT: Final = """
redis.call('PERSIST', KEYS[1])
for i = 1, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], 'rejected:' .. ARGV[i], ARGV[i + 1])
end
return redis.call('HGETALL', KEYS[1])
"""

ACCEPTED: Final = """
return tonumber(redis.call('GET', KEYS[2]) or '0') + redis.call('XLEN', KEYS[1])
"""


class Stream(Appender):
    """The API's end of one model's Redis. Use it inside one event loop.

    Arguments:
        client, model, **how: As `Appender` takes them.

    Example:
        async with Stream.open(settings) as stream:
            appended = await stream.append(RawBatch.of(features, labels))
    """

    def __init__(self, client: AsyncClient, model: str, **how: Any) -> None:
        super().__init__(client, model, **how)
        self.reports = Reports(self)
        self.transfers = Transfers(self, model)
        self._count = client.register_script(COUNT)
        self._accepted = client.register_script(ACCEPTED)

    @classmethod
    def open(cls, settings: Settings) -> Stream:
        """The stream that the settings name; connects at the first call.

        Raises:
            InvalidSettings: No Redis address is set.
        """
        address = settings.redis_address_of_ones_own()
        examiner = examiner_of(settings, "api")
        return cls(
            connect_async(address, examiner, identity_of(settings)),
            settings.model,
            max_backlog=settings.max_backlog,
            dedupe_ttl_s=settings.dedupe_ttl_s,
            dedupe_mib=settings.dedupe_mib,
            n_features=settings.n_features,
            examiner=examiner,
            replicas=settings.redis_replicas,
            room=room_of(settings),
        )

    @classmethod
    def beside(cls, other: Stream, settings: Settings) -> Stream:
        """The stream of another model, over the connections of one that is open.

        Arguments:
            other: Which closes the connections.
            settings: Of the model.
        """
        return cls(
            other.client,
            settings.model,
            max_backlog=settings.max_backlog,
            dedupe_ttl_s=settings.dedupe_ttl_s,
            dedupe_mib=settings.dedupe_mib,
            n_features=settings.n_features,
            examiner=other.examiner,
            replicas=settings.redis_replicas,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def count(self, rejected: Mapping[str, int]) -> Counts:
        """Add to what all API processes count together, and read it.

        Arguments:
            rejected: Batches that were refused since the last call, by reason.

        Raises:
            StreamUnavailable: Redis is away; whether they were added is not known.
        """
        arguments = [part for pair in rejected.items() for part in pair]
        async with asyncio.timeout(READ_S):
            # Once: a repeat would count them twice.
            reply = await self.once(lambda: self._count(keys=[self.keys.counts], args=arguments))
        found = dict(zip(map(bytes.decode, reply[::2]), map(int, reply[1::2]), strict=True))
        return Counts(
            found.pop("samples_ingested", 0),
            found.pop("batches_ingested", 0),
            {name.removeprefix("rejected:"): n for name, n in found.items()},
        )

    async def ping(self) -> None:
        """Return when Redis answers.

        Raises:
            StreamUnavailable: It does not.
        """
        await self.read(self.client.ping)

    async def accepted(self) -> int:
        """Entries accepted in all, ever: those in the stream and those trimmed from it."""
        keys = [self.keys.input, self.keys.applied]
        return int(await self.read(lambda: self._accepted(keys=keys)))

    async def n_features(self) -> int | None:
        """D, or None while any number of features will do."""
        if self._n_features is not None:
            return self._n_features
        fixed = await self.read(lambda: self.client.get(self.keys.features))
        return None if fixed is None else int(fixed)
