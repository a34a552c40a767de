"""What can be wrong at the HTTP edge, beside the tree of `core.errors`.

* InvalidRequest
  - BodyTooLarge        more bytes than the service takes in one body
  - OutOfRange          a parameter beyond its limit
  - InvalidShape        a `shape` that is none, or that does not fit the samples
  - UnsupportedMedia    a body in a form that the route does not read
  - UnknownBoundary     no boundary has this id
  - FeaturesUnknown     names of features, before it is known how many there are
  - VersionNotServed    /v2 names a version that is not served
  - NotAcceptable       the client accepts no form that the route can answer in
  - CrossSite           a browser sends this on behalf of another site
  - UntrustedHost       the request is meant for another host
  - Unauthorized        no key that counts
  - Forbidden           a key that may not do this
  - RateLimited         a key that asks or sends more than it may
  - UnknownKey          no API key has this id
  - TooManyKeys         there are as many keys as there may be
  - UnknownModel        no named model has this name
  - ModelConflict       a named model was made with other settings
  - ModelLeaving        a named model is being taken down
  - TooManyModels       there are as many named models as there may be
* Unavailable           a part that the answer needs is away for the moment
  - TooManyBodies       the bodies of other requests fill the memory that there is for them

`problems.py` says which status each of them is.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence

from core.counted import counted
from core.errors import GMRError, InvalidRequest

_MOST_NAMED = 8
"""Models of a key that a message names."""


class BodyTooLarge(InvalidRequest):
    """More bytes than the service takes in one body."""

    @classmethod
    def beyond(cls, limit: int, got: int | None = None) -> BodyTooLarge:
        """The error for a body of `got` bytes, None while only "too many" is known."""
        return cls._of(
            f"The body has {_bytes(limit, got)}; the service takes at most {limit} in one request. "
            f"Send fewer samples at a time, or uint8 instead of JSON, or raise GMR_MAX_BODY_BYTES.",
            limit,
            got,
        )

    @classmethod
    def of_fields(cls, limit: int, got: int | None = None) -> BodyTooLarge:
        """The error for a body of a few fields with `got` bytes, None as for `beyond`."""
        return cls._of(
            f"The body has {_bytes(limit, got)}; this route takes at most {limit}. Expected an "
            f"object with a few fields. Leave out the rest.",
            limit,
            got,
        )

    @classmethod
    def checkpoint(cls, limit: int, got: int | None = None) -> BodyTooLarge:
        """The error for a checkpoint of `got` bytes, None while only "too many" is known."""
        return cls._of(
            f"The checkpoint has {_bytes(limit, got, ',')}; the limit is {limit:,}. Raise "
            f"GMR_MAX_CHECKPOINT_BYTES at this service, start it again and send the same once "
            f"more.",
            limit,
            got,
        )

    @classmethod
    def _of(cls, message: str, limit: int, got: int | None) -> BodyTooLarge:
        return cls(message, limit=limit, **({} if got is None else {"got": got}))


def _bytes(limit: int, got: int | None, form: str = "") -> str:
    """The size of a body, as far as it is known."""
    return f"more than {limit:{form}} bytes" if got is None else f"{got:{form}} bytes"


class VersionNotServed(InvalidRequest):
    """The Open Inference Protocol names a version that is not served."""

    @classmethod
    def of(cls, got: str, served: int) -> VersionNotServed:
        """The error for a version that was asked for beside the one that is served."""
        return cls(
            f"Version {got[:40]!r} is not served; version {served} is. A model that learns has "
            f"new versions all the time: leave the version out."
        )


class OutOfRange(InvalidRequest):
    """A parameter beyond its limit."""

    @classmethod
    def of(cls, name: str, *, got: object, low: object, high: object) -> OutOfRange:
        """The error for the parameter `name`, which should lie in [low, high]."""
        return cls(
            f"`{name}` is {got}; expected a value from {low} to {high}. Change it and ask again.",
            parameter=name,
            low=low,
            high=high,
        )


class InvalidShape(InvalidRequest):
    """A `shape` that is none, or that does not fit the samples."""

    @classmethod
    def unreadable(cls, text: str) -> InvalidShape:
        """The error for a text that names no shape."""
        return cls(
            f"The shape {text[:40]!r} cannot be read; expected height,width or height,width,3, "
            f"for example shape=28,28. Correct the parameter."
        )

    @classmethod
    def mismatch(cls, shape: Sequence[int], n_features: int) -> InvalidShape:
        """The error for a shape of another number of pixels than a sample has features."""
        return cls(
            f"The shape {','.join(map(str, shape))} holds {math.prod(shape)} numbers, but a sample "
            f"has {n_features} features. Name a shape whose product is {n_features}.",
            shape=list(shape),
            features=n_features,
        )


class UnsupportedMedia(InvalidRequest):
    """A body in a form that the route does not read."""

    @classmethod
    def type(cls, got: str | None, supported: Sequence[str]) -> UnsupportedMedia:
        """The error for a media type that is not among `supported`."""
        return cls(
            f"The body comes as {got[:80]!r}; expected {' or '.join(supported)}. "
            f"Set the header Content-Type to what the body is."
            if got
            else f"The body comes without a media type; expected {' or '.join(supported)}. "
            f"Set the header Content-Type.",
            supported=list(supported),
        )

    @classmethod
    def encoding(cls, got: str) -> UnsupportedMedia:
        """The error for a compressed body, which could grow without bound when unpacked."""
        return cls(
            f"The body is encoded as {got[:40]!r}; expected no Content-Encoding, because a small "
            f"compressed body can unpack to any size. Send it plain; uint8 is smallest.",
            supported=["identity"],
        )


class FeaturesUnknown(InvalidRequest):
    """Names of features come before it is known how many there are."""

    @classmethod
    def yet(cls, got: int) -> FeaturesUnknown:
        """The error for so many names."""
        return cls(
            f"It is not known yet how many features a sample has, but {counted(got, 'name')} came; "
            f"nothing was kept. Send a first batch before, or set GMR_N_FEATURES.",
            got=got,
        )


class UnknownBoundary(InvalidRequest):
    """No boundary has this id."""

    @classmethod
    def among(cls, id: str, newest: Sequence[str]) -> UnknownBoundary:
        """The error that lists the ids of the newest boundaries."""
        return cls(
            f"No boundary has the id {id[:40]!r}. The newest: {', '.join(newest) or 'none yet'}. "
            f"Ask for one of these, or for all by GET /drift/boundaries.",
            known=list(newest),
        )


class NotAcceptable(InvalidRequest):
    """The client accepts no form that the route can answer in."""

    @classmethod
    def of(cls, accept: str, offered: Sequence[str]) -> NotAcceptable:
        """The error for a header `accept` that excludes everything on offer."""
        return cls(
            f"The client accepts {accept[:80]!r}, but this route answers as "
            f"{' or '.join(offered)}. Ask for one of these with the header Accept.",
            offered=list(offered),
        )

    @classmethod
    def coding(cls, accept: str, offered: Sequence[str]) -> NotAcceptable:
        """The error for a header `Accept-Encoding` that excludes every coding on offer."""
        return cls(
            f"The client accepts the encodings {accept[:80]!r}, but this file comes as "
            f"{' or '.join(offered)}. Allow one of these with the header Accept-Encoding.",
            offered=list(offered),
        )

    @classmethod
    def no_prototypes(cls, id: str) -> NotAcceptable:
        """The error for a boundary of which nothing can be drawn."""
        return cls(
            f"There are no prototypes of the boundary {id}: it was declared without new samples, "
            f"it had fewer than ten of them or more features than are drawn, or newer boundaries "
            f"have taken its place. Ask for application/json.",
            offered=["application/json"],
        )

    @classmethod
    def no_samples(cls, id: str) -> NotAcceptable:
        """The error for a dead letter that holds no samples to send as tensors."""
        return cls(
            f"The dead letter {id} holds no samples that can be read. Expected a batch that was "
            f"kept whole. Ask for application/json.",
            offered=["application/json"],
        )

    @classmethod
    def no_picture(cls, n_features: int) -> NotAcceptable:
        """The error for samples that cannot be drawn without knowing their shape."""
        return cls(
            f"Samples of {n_features} features cannot be drawn as they are. Expected a square "
            f"number of features, or images of one channel or three. Name a shape, for example "
            f"shape=height,width, or ask for application/json.",
            features=n_features,
        )

    @classmethod
    def no_picture_of(cls, shape: Sequence[int]) -> NotAcceptable:
        """The error for images of a shape that is none of a picture."""
        first = shape[0] == 3
        advice = "Send channels last, from the first batch on" if first else "Name a shape"
        return cls(
            f"Images of shape {tuple(shape)}{', channels first,' if first else ''} cannot be "
            f"drawn. Expected (H, W), (H, W, 1) or (H, W, 3). {advice}, or ask for "
            f"application/json.",
            features=math.prod(shape),
            shape=list(shape),
        )


class CrossSite(InvalidRequest):
    """A browser sends this on behalf of another site."""

    @classmethod
    def refused(cls) -> CrossSite:
        """The one error of this kind."""
        return cls(
            "A page of another site asked the browser to change this service. Such requests are "
            "only taken from programs and from the service's own pages. Send it from there."
        )


class UntrustedHost(InvalidRequest):
    """A request that is meant for another host."""

    @classmethod
    def of(cls, host: str) -> UntrustedHost:
        """The error for a header `Host`."""
        return cls(
            f"The request is for the host {host[:80]!r}, which is none of this service's. Expected "
            f"the name under which it listens. Ask by that, or add the name to GMR_ALLOWED_HOSTS."
        )


class Unauthorized(InvalidRequest):
    """A request without a key that counts."""

    @classmethod
    def without(cls, key: str | None) -> Unauthorized:
        """The error for a request with this key, or with none."""
        which = "no key" if key is None else "a key that does not count here"
        return cls(
            f"The request brings {which}. Expected one that `gmr keys add` has made, in the header "
            f"`Authorization: Bearer gmr_...`, or, for the command `gmr` and the Python client, in "
            f"GMR_API_KEY. Ask whoever runs the service for one."
        )


class Forbidden(InvalidRequest):
    """A key that may not do this."""

    @classmethod
    def of(cls, needed: str, roles: Sequence[str]) -> Forbidden:
        """The error for a key with these roles on a route that needs another."""
        return cls(
            f"The key has the role {', '.join(roles)}; this needs {needed}. Use a key with that "
            f"role, or ask whoever runs the service for one.",
            needed=needed,
            roles=list(roles),
        )

    @classmethod
    def beyond(cls, models: Sequence[str]) -> Forbidden:
        """The error for a key that counts for these models on a path that is not theirs alone.

        It is the same whether or not there is such a model, or such a route.
        """
        first = ", ".join(models[:_MOST_NAMED])
        more = len(models) - _MOST_NAMED
        one = len(models) == 1 and not first.endswith("*")
        which = f"model{'' if one else 's'} {first}{f' and {more} more' if more > 0 else ''}"
        return cls(
            f"The key counts for the {which} alone; this concerns another, or the whole service. "
            f"Ask for one of its models, below /models/NAME (--model NAME), or use a key that "
            f"counts for this.",
            models=list(models),
        )


class RateLimited(InvalidRequest):
    """A key that asks or sends more than it may."""

    @classmethod
    def of(cls, kind: str, rate: float, seconds: float) -> RateLimited:
        """The error for a key that has nothing left of a kind for so many seconds."""
        return cls(
            f"The key has used more {kind} than the {rate:g} a second that each key may; nothing "
            f"was done. Ask again in {seconds:.1f} s, and more slowly from then on, or raise "
            f"GMR_KEY_{kind.upper()}_PER_S.",
            kind=kind,
            rate=rate,
            retry_after_s=round(seconds, 3),
        )


class UnknownKey(InvalidRequest):
    """No API key has this id."""

    @classmethod
    def of(cls, id: str) -> UnknownKey:
        """The error for an id."""
        return cls(
            f"No key has the id {id[:40]!r}. Expected one of those that GET /keys lists. Ask for "
            f"the list."
        )


class TooManyKeys(InvalidRequest):
    """There are as many API keys as there may be."""

    @classmethod
    def beyond(cls, limit: int) -> TooManyKeys:
        """The error for one more than the limit."""
        return cls(
            f"There are {limit} keys, which is the most. Revoke one that is no longer used, and "
            f"ask again.",
            limit=limit,
        )


class UnknownModel(InvalidRequest):
    """No named model has this name."""

    @classmethod
    def of(cls, name: str) -> UnknownModel:
        """The error for a name, to whom others are not told."""
        return cls(f"No model has the name {name[:64]!r}. Correct the name.", unknown=name[:64])

    @classmethod
    def among(
        cls,
        name: str,
        known: Sequence[str],
        *,
        on_demand: bool,
        own: str | None = None,
        some: bool = False,
    ) -> UnknownModel:
        """The error for a name.

        Arguments:
            name: That was asked for.
            known: The names that there are; the nearest are told.
            on_demand: Whether a first batch would make the model, told as `on_demand`.
            own: Name of the service's own model, which is none of the named ones.
            some: Whether `known` are only those that the key of whoever asks counts for.
        """
        if name == own:
            return cls(
                f"{name[:64]!r} is the service's own model, which is none of the named ones. "
                f"Leave /models/{name[:64]} out of the path: POST /ingest, GET /model and all "
                f"others.",
                unknown=name[:64],
                known=[],
            )
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or list(known[:3])
        whose = " for this key" if some else ""
        there = f"There is none{whose}."
        if near:
            there = f"There are {len(known)}{whose}, such as {', '.join(near)}."
        how = "Send its first batch to make it" if on_demand else "Make it by PUT /models/{name}"
        return cls(
            f"No model has the name {name[:64]!r}. {there} {how}, or correct the name.",
            unknown=name[:64],
            known=near,
            on_demand=on_demand,
        )


class ModelConflict(InvalidRequest):
    """A named model was made with other settings."""

    @classmethod
    def of(cls, name: str, there: Mapping[str, object]) -> ModelConflict:
        """The error for a model that is there.

        Arguments:
            name: Of the model.
            there: Its settings.
        """
        has = ", ".join(f"{setting} = {value}" for setting, value in there.items())
        return cls(
            f"The model {name!r} was made with other settings ({has}), which stay as they are. "
            f"Choose another name, or take the model down first. To go on from where it "
            f"stands with other settings: gmr models copy NEW --from {name} --set NAME=VALUE.",
            settings=dict(there),
        )


class ModelLeaving(InvalidRequest):
    """A named model is being taken down."""

    @classmethod
    def of(cls, name: str) -> ModelLeaving:
        """The error for a name."""
        return cls(
            f"The model {name!r} is being taken down, which the trainer does within seconds while "
            f"it works. Ask for another, or make it anew when GET /models does not list it."
        )


class TooManyModels(InvalidRequest):
    """There are as many named models as there may be."""

    @classmethod
    def beyond(cls, limit: int) -> TooManyModels:
        """The error for one more than the limit."""
        return cls(
            f"There are {limit} named models, which is the most. Take one down, or raise "
            f"GMR_MAX_MODELS.",
            limit=limit,
        )


class Unavailable(GMRError):
    """A part that the answer needs is away for the moment."""


class TooManyBodies(Unavailable):
    """The bodies of other requests fill the memory that there is for them."""

    @classmethod
    def beyond(cls, limit: int, held: int) -> TooManyBodies:
        """The error where `held` bytes of `limit` are taken."""
        return cls(
            f"The bodies of other requests hold {held} of {limit} bytes, and this one finds no "
            f"room; nothing was accepted. Send the same again in a moment, or raise "
            f"GMR_MAX_BODIES_MIB.",
            limit=limit,
            held=held,
        )
