"""GET /sample: what the model thinks its world looks like."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from core.snapshot import PATIENT_DRAWS, Samples, Snapshot
from service.api import answers, montage
from service.api.errors import OutOfRange
from service.api.negotiation import JSON, NPY, OCTETS, PNG, SAFETENSORS, choose
from service.api.openapi import forms, problems
from service.api.parts import parts_of, snapshot_of
from service.api.query import StrictRoute
from service.wire import Label

router = APIRouter(tags=["model"], route_class=StrictRoute)

FORMS = (JSON, SAFETENSORS, NPY, OCTETS, PNG)
LARGEST_MONTAGE = 400
LARGEST_SEED = 2**63 - 1
LARGEST_OWN_SEED = 2**53 - 1
"""Of those chosen here: what every reader of JSON keeps exactly."""

SEED_HEADER = "X-Sample-Seed"
"""The seed of the draw, in every form of the answer."""

SHORT_HEADER = "X-Samples-Short"
"""How many samples fell short of the least probability, in every form of the answer."""


class Sampled(BaseModel):
    """Samples drawn from the model."""

    model_version: int = Field(description="Version of the model that answered.")
    seed: int = Field(description="Seed of the draw: with it, the same samples come again.")
    features: list[list[float]] = Field(description="n rows of D numbers.")
    labels: list[int | str | None] = Field(description="Class of each; null while none is known.")
    log_likelihoods: list[float] = Field(description="In nats, one per sample.")
    probabilities: list[float] = Field(
        description="That the model itself gives each sample's class; 1 while none is known."
    )
    short: list[bool] = Field(
        description="Whether that is less than was asked for: the best of a sample's draws."
    )


@router.get(
    "/sample",
    operation_id="sample",
    summary="Draw samples",
    response_model=Sampled,
    responses={
        200: {"content": forms(SAFETENSORS, NPY, OCTETS, PNG)},
        **problems(404, 406, 409, 422),
    },
)
async def sample(
    request: Request,
    classes: Annotated[
        list[str] | None,
        Query(description="Wanted classes, separated by commas; none: whatever the model knows."),
    ] = None,
    n: Annotated[int, Query(description="Samples to draw.")] = 25,
    seed: Annotated[
        int | None,
        Query(
            ge=0,
            le=LARGEST_SEED,
            description="Seed of the draw; without it a new one each time, which the answer names.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        Query(description="Shape of one sample in a picture: height,width or height,width,3."),
    ] = None,
    min_probability: Annotated[
        float | None,
        Query(
            description="What the model itself must give a sample's class, 0 to 1. What falls "
            f"short is drawn again, and after {PATIENT_DRAWS} draws the best is kept. Without it "
            "a stricter rule where classes are named, in fewer draws, and 0 otherwise."
        ),
    ] = None,
    noise: Annotated[
        bool,
        Query(description="Add the noise of single features; without it samples look cleaner."),
    ] = True,
) -> Response:
    """The same seed, options and model version give the same samples. The answer names the seed,
    in every form of it as the header `X-Sample-Seed`. Each of several classes gets as many samples
    as any other, or one more.

    As `.npy` the answer holds the features alone. As PNG it is a montage, one row per
    class where classes were asked for. The header `X-Samples-Short` counts the samples
    that fall short of what was asked for.
    """
    parts = parts_of(request)
    form = choose(request.headers.get("accept"), FORMS)
    most = parts.settings.max_sample_n
    if form == PNG:
        most = min(most, LARGEST_MONTAGE)
    if "n" not in request.query_params:
        n = min(n, most)
    if not 1 <= n <= most:
        raise OutOfRange.of("n", got=n, low=1, high=most)
    if min_probability is not None and not 0 <= min_probability <= 1:
        raise OutOfRange.of("min_probability", got=min_probability, low=0, high=1)
    wanted_shape = None if shape is None else montage.parse_shape(shape)

    drawn_with = secrets.randbelow(LARGEST_OWN_SEED + 1) if seed is None else seed
    snapshot = await snapshot_of(parts)
    if form == PNG:
        known = montage.known_shape(snapshot.info, parts.settings.image)
        picture = montage.image_shape(snapshot.info.features, wanted_shape, known)
    wanted = None if classes is None else _labels(classes, snapshot.classes)
    rounds = 1 if min_probability is None else PATIENT_DRAWS
    drawn = await parts.workers.run(
        lambda: snapshot.sample(
            n, wanted, drawn_with, least_probability=min_probability, noise=noise
        ),
        n * snapshot.info.parameters * rounds,
    )

    version = snapshot.version
    features, codes = answers.numpy(drawn.features), answers.numpy(drawn.codes)
    if form in (NPY, OCTETS):
        response = answers.npy(features, version=version, media_type=form)
    elif form == PNG:
        captions = None
        if wanted is not None:  # one row per class, in the order asked for
            places = [wanted.index(snapshot.classes[code]) for code in codes.tolist()]
            order = sorted(range(n), key=places.__getitem__)
            features, captions = features[order], [str(wanted[places[i]]) for i in order]
        content = await parts.workers.run(
            lambda: montage.draw(features, picture, captions), math.inf
        )
        response = answers.png(content, version=version)
    else:
        response = _with_everything(snapshot, drawn, drawn_with, form)
    response.headers[SEED_HEADER] = str(drawn_with)
    response.headers[SHORT_HEADER] = str(int(drawn.short.sum()))
    return response


def _with_everything(snapshot: Snapshot, drawn: Samples, seed: int, form: str) -> Response:
    """The samples and what the model says of each, as JSON or safetensors."""
    codes = answers.numpy(drawn.codes)
    arrays = {
        "features": answers.numpy(drawn.features),
        "log_likelihoods": answers.numpy(drawn.log_likelihoods),
        "probabilities": answers.numpy(drawn.probabilities),
        "short": answers.numpy(drawn.short),
    }
    if form == SAFETENSORS:
        metadata = {"vocabulary": orjson.dumps(snapshot.classes).decode(), "seed": str(seed)}
        return answers.safetensors({"labels": codes, **arrays}, metadata, version=snapshot.version)
    labels = [snapshot.classes[code] if code >= 0 else None for code in codes.tolist()]
    document = {"model_version": snapshot.version, "seed": seed, "labels": labels, **arrays}
    return answers.json(document, version=snapshot.version)


def _labels(texts: Sequence[str], known: Sequence[Label]) -> list[Label]:
    """The labels that the texts of a query name; a label that is no class stays as it is.

    A text that is a class as a whole is that class, even with a comma in it; so is a part
    of it between commas, with its blanks. An integer is preferred to the string that looks
    like it. Nothing between commas is no class; an empty text beside others is one that is empty.

    Example:
        >>> _labels(["1,cat"], (1, "cat"))
        [1, 'cat']
        >>> _labels(["a,b", " c ,d"], ("a", "b", "a,b", " c ", "d"))
        ['a,b', ' c ', 'd']
        >>> _labels(["", "b"], ("b",)), _labels(["b,"], ("b",))
        (['', 'b'], ['b'])
    """
    by_text: dict[str, Label] = {str(label): label for label in known if isinstance(label, str)}
    by_text |= {str(label): label for label in known if isinstance(label, int)}
    named: list[str] = []
    for text in texts:
        if text in by_text or (not text and len(texts) > 1):
            named.append(text)
            continue
        parts = [part if part in by_text else part.strip() for part in text.split(",")]
        named += [part for part in parts if part]
    return [by_text.get(name, name) for name in named]
