"""/keys: who may ask. Keys are made, listed and revoked by a key with the role `admin`."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies import read_model
from service.api.errors import TooManyKeys, UnknownKey
from service.api.openapi import json_body, problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.broker.api_keys import LONGEST_NAME, MOST_KEYS, MOST_MODELS, ApiKey, Role

router = APIRouter(prefix="/keys", tags=["operations"], route_class=StrictRoute)


class Asked(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid", title="KeyAsked")

    name: str = Field(description=f"Whose it is, for people; 1 to {LONGEST_NAME} characters.")
    roles: list[Literal["ingest", "read", "admin"]] = Field(
        min_length=1, description="What it may do: send samples, ask, or anything."
    )
    models: list[str] | None = Field(
        None,
        description=f"For which it counts: 1 to {MOST_MODELS} names of models, or beginnings of "
        f"names that end in `*`. Left out: for all, and for what concerns the whole service.",
        examples=[["pump-7"]],
    )


class Listed(BaseModel):
    """A key, without its secret."""

    model_config = ConfigDict(title="KeyListed")

    id: str = Field(description="By which it is revoked.")
    name: str
    roles: list[Role]
    made: float = Field(description="When, in seconds since 1970.")
    models: list[str] | None = Field(description="For which it counts; null for all.")

    @classmethod
    def of(cls, key: ApiKey) -> Listed:
        """What may be told of a key."""
        models = None if key.models is None else list(key.models)
        return cls(id=key.id, name=key.name, roles=list(key.roles), made=key.made, models=models)


class Made(Listed):
    """A new key."""

    model_config = ConfigDict(title="KeyMade")

    key: str = Field(description="The key itself. It is shown this once; nobody keeps it.")


class Keys(BaseModel):
    """All keys."""

    model_config = ConfigDict(title="Keys")

    keys: list[Listed] = Field(description="Oldest first.")


class KeyShareRow(BaseModel):
    """What keys sent of the newest samples that were given to a model."""

    model_config = ConfigDict(title="KeyShareRow")

    samples: int = Field(description="Samples of batches that were learned or set aside.")
    share: float | None = Field(description="Of all samples of the window; null for none.")
    outliers: int = Field(description="Of these, outliers as they were scored before.")
    outlier_share: float | None = Field(description="Of all outliers; null where there is none.")


class NamedShare(KeyShareRow):
    """That of the keys of one name."""

    model_config = ConfigDict(title="NamedShare")

    name: str | None = Field(description="Of the key; null for what came without one.")


class KeyShares(BaseModel):
    """Shares of keys in the newest samples that were given to a model."""

    model_config = ConfigDict(title="KeyShares")

    samples: int = Field(description="Of the window.")
    outliers: int
    cap: float | None = Field(description="`GMR_MAX_KEY_SHARE`; null where it is unset.")
    outlier_cap: float | None = Field(description="`GMR_MAX_KEY_OUTLIERS`; null where it is unset.")
    keys: list[NamedShare] = Field(description="Largest first; at most 64.")
    other: KeyShareRow | None = Field(description="The rest together; null where there is none.")


BODY = json_body(Asked)


@router.get("", operation_id="list_keys", responses=problems(401, 403, 421, 503))
async def list_keys(request: Request) -> Keys:
    """The keys that count, without their secrets. The operator's own is none of them."""
    return Keys(keys=[Listed.of(key) for key in await parts_of(request).keys.store.all()])


@router.get("/shares", operation_id="key_shares", responses=problems(401, 403, 421, 503))
async def key_shares(request: Request) -> KeyShares:
    """How much of the newest samples learned, and of their outliers, each key has sent."""
    parts = parts_of(request)
    status = await parts.stream.reports.status() or {}
    empty = {"samples": 0, "outliers": 0, "keys": [], "other": None}
    shares = status.get("key_shares") or empty
    settings = parts.settings
    return KeyShares(cap=settings.max_key_share, outlier_cap=settings.max_key_outliers, **shares)


@router.post(
    "",
    operation_id="make_key",
    status_code=201,
    responses=problems(401, 403, 409, 413, 415, 421, 422, 503),
    openapi_extra=BODY,
)
async def make_key(request: Request) -> Made:
    """Make a key. All API processes know it at once."""
    parts = parts_of(request)
    asked = await read_model(request, parts.settings, Asked)
    kept, key = ApiKey.mint(asked.name, asked.roles, asked.models)
    if not await parts.keys.store.add(kept, MOST_KEYS):
        raise TooManyKeys.beyond(MOST_KEYS)
    return Made(**Listed.of(kept).model_dump(), key=key)


@router.delete(
    "/{id}",
    operation_id="revoke_key",
    status_code=204,
    responses=problems(401, 403, 404, 421, 422, 503),
)
async def revoke_key(request: Request, id: str) -> None:
    """Revoke a key. Within a second no API process takes it any more."""
    if not await parts_of(request).keys.store.drop(id):
        raise UnknownKey.of(id)
