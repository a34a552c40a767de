"""GET /events: what happens, as it happens, as server-sent events."""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from core.errors import InvalidRequest
from core.events import KINDS as KINDS_OF_EVENTS
from service.api.head import EndlessRoute
from service.api.openapi import problems
from service.api.parts import Parts, parts_of, position
from service.broker.connection import StreamUnavailable
from service.broker.feature_names import FeatureNames

router = APIRouter(tags=["drift"], route_class=EndlessRoute)
logger = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 15.0
RECONNECT_MS: Final = 2_000
KEEP_ALIVE: Final = b": still here\n\n"
EVENT_STREAM: Final = "text/event-stream"

MISSED: Final = "missed"
KINDS: Final = tuple(sorted({*KINDS_OF_EVENTS, MISSED}))
"""Every kind that a listener may ask for; `missed` comes in any case."""

HEADERS: Final = {
    "Cache-Control": "no-cache",
    # Proxies that buffer answers would hold events back.
    "X-Accel-Buffering": "no",
}


@router.get(
    "/events",
    operation_id="events",
    summary="Follow what happens",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events without end. `event` is the kind, `data` the event "
            "as JSON, `id` what to resume from.",
            "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
        },
        **problems(422, 503),
    },
)
async def events(
    request: Request,
    last_event_id: Annotated[
        str | None,
        Header(description="Resume after this event; 0 for all that are kept."),
    ] = None,
    after: Annotated[
        str | None, Query(description="The same as `Last-Event-ID`, for clients without headers.")
    ] = None,
    kinds: Annotated[
        str | None,
        Query(description="Only these kinds of events, separated by commas; others are refused."),
    ] = None,
) -> StreamingResponse:
    """Kinds: `batch_learned`, `batch_set_aside`, `batch_passed`, `set_aside_released`,
    `windows_settled`, `mode_changed`, `change_detected`, `labels_held`, `ert_changed`,
    `settings_changed`, `class_renamed`, `classes_merged`, `boundary`, `change_continued`,
    `samples_repeated`, `prior_shift`, `features_drifting`, `outlier_burst`,
    `outlier_burst_continued`, `shadow_alarm`, `replay`, `class_discovered`, `labels_matched`,
    `labels_missed`, `class_proposed`, `proposal_closed`, `unknowns_learned`, `model_published`,
    `model_restored`, `version_held`, `hold_ended`, `entry_rejected`, `dead_letters_dropped`,
    `entries_lost`; and `missed` where events were dropped before a client came back for them.
    """
    parts = parts_of(request)
    start = last_event_id or after
    if start is not None and not re.fullmatch(r"[0-9]{1,15}(-[0-9]{1,18})?", start):
        raise InvalidRequest(
            "Last-Event-ID is no id of an event. Expected one like 1700000000000-20003, or 0 for "
            "all that are kept. Send back what the last event had as id.",
            parameter="Last-Event-ID",
        )
    if start is None:
        start = await parts.stream.reports.last_event_id()
    wanted = None if kinds is None else _wanted(kinds)
    content = _lines(request, parts, start, wanted)
    return StreamingResponse(content, media_type=EVENT_STREAM, headers=HEADERS)


def _wanted(text: str) -> frozenset[str]:
    """The kinds that a parameter names.

    Raises:
        InvalidRequest: It names none, or one that does not exist.

    Example:
        >>> sorted(_wanted("boundary, replay"))
        ['boundary', 'replay']
    """
    named = [kind.strip() for kind in text.split(",") if kind.strip()]
    unknown = [kind for kind in named if kind not in KINDS]
    if named and not unknown:
        return frozenset(named)
    what = f"There is no event of kind {unknown[0][:40]!r}." if unknown else "`kinds` names none."
    close = difflib.get_close_matches(unknown[0][:40], KINDS, n=1) if unknown else []
    advice = f"Did you mean `{close[0]}`? " if close else ""
    raise InvalidRequest(
        f"{what} {advice}Expected some of these, separated by commas: {', '.join(KINDS)}.",
        parameter="kinds",
        unknown=[kind[:40] for kind in unknown[:10]],
        known=list(KINDS),
    )


async def _lines(
    request: Request, parts: Parts, after: str, wanted: frozenset[str] | None
) -> AsyncIterator[bytes]:
    with parts.metrics.listening():
        # At once, so that the client knows that it is connected; with the id that it begins
        # after, so that one that is cut off before its first event misses none either.
        yield b"retry: %d\nid: %b\n\n" % (RECONNECT_MS, after.encode())
        try:
            async for lines in _told(request, parts, after, wanted):
                yield lines
        except StreamUnavailable as error:
            # The answer has begun, so that no status can tell. Who listens comes back by itself.
            logger.warning("a listener of events is let go: %s", error)


async def _told(
    request: Request, parts: Parts, after: str, wanted: frozenset[str] | None
) -> AsyncIterator[bytes]:
    """What was missed, then events, and a comment where there are none for a while.

    Raises:
        StreamUnavailable: Redis does not answer.
    """
    missed = await _missed(parts, after)
    if missed is not None:
        yield missed
    told_at, newest = time.monotonic(), ""
    async for records in parts.feed.follow(after, KEEP_ALIVE_S):
        if await request.is_disconnected():
            return
        asked = [one for one in records if wanted is None or one.data.get("kind") in wanted]
        if asked:
            named = await FeatureNames(parts.stream).in_records([one.data for one in asked])
            lines = [_format(one.id, data) for one, data in zip(asked, named, strict=True)]
            yield b"".join(lines)
        elif records and time.monotonic() - told_at < KEEP_ALIVE_S:
            newest = records[-1].id
            continue
        else:
            # Events of other kinds may keep coming: proxies would take the silence for an end, and
            # who comes back would be told of a gap where nothing that was asked for is missing.
            newest = records[-1].id if records else newest
            yield b"%bid: %b\n\n" % (KEEP_ALIVE, newest.encode()) if newest else KEEP_ALIVE
        told_at, newest = time.monotonic(), ""


async def _missed(parts: Parts, after: str) -> bytes | None:
    """The event that tells of a gap, where the event to resume from is kept no more."""
    if position(after) == (0, 0):
        return None
    oldest = await parts.stream.reports.events("0", count=1, block_ms=1)
    if not oldest or position(oldest[0].id) <= position(after):
        return None
    data = orjson.dumps({"kind": MISSED, "after": after, "oldest": oldest[0].id})
    return b"event: missed\ndata: %b\n\n" % data


def _format(id: str, data: Mapping[str, Any]) -> bytes:
    kind = str(data.get("kind", "message")).encode()
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), kind, orjson.dumps(data))
