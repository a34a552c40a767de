"""GET /sample: what the model thinks its world looks like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from service.api import answers, montage
from service.api.errors import OutOfRange
from service.api.negotiation import JSON, NPY, OCTETS, PNG, SAFETENSORS, choose
from service.api.openapi import forms, problems
from service.api.parts import parts_of, snapshot_of
from service.wire import Label

router = APIRouter(tags=["model"])

FORMS = (JSON, SAFETENSORS, NPY, OCTETS, PNG)
LARGEST_MONTAGE = 400
LARGEST_SEED = 2**63 - 1


class Sampled(BaseModel):
    """Samples drawn from the model."""

    model_version: int = Field(description="Of the model that answered.")
    features: list[list[float]] = Field(description="n rows of D numbers.")
    labels: list[int | str | None] = Field(description="Class of each; null while none is known.")
    log_likelihoods: list[float] = Field(description="In nats, one per sample.")


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
    seed: Annotated[int, Query(ge=0, le=LARGEST_SEED, description="Of the draw.")] = 0,
    shape: Annotated[
        str | None,
        Query(description="Of one sample in a picture: height,width or height,width,3."),
    ] = None,
) -> Response:
    """The same seed and model version give the same samples.

    As `.npy` the answer holds the features alone. As PNG it is a montage, one row per
    class where classes were asked for.
    """
    parts = parts_of(request)
    form = choose(request.headers.get("accept"), FORMS)
    most = parts.settings.max_sample_n
    if form == PNG:
        most = min(most, LARGEST_MONTAGE)
    if not 1 <= n <= most:
        raise OutOfRange.of("n", got=n, low=1, high=most)
    wanted_shape = None if shape is None else montage.parse_shape(shape)

    snapshot = snapshot_of(parts)
    if form == PNG:
        picture = montage.image_shape(snapshot.info.features, wanted_shape)
    wanted = None if classes is None else _labels(classes, snapshot.classes)
    drawn = await parts.workers.run(
        lambda: snapshot.sample(n, wanted, seed), n * snapshot.info.parameters
    )

    version = snapshot.version
    features = answers.numpy(drawn.features)
    if form in (NPY, OCTETS):
        return answers.npy(features, version=version, media_type=form)
    codes = answers.numpy(drawn.codes)
    arrays = {"features": features, "log_likelihoods": answers.numpy(drawn.log_likelihoods)}
    if form == SAFETENSORS:
        metadata = {"vocabulary": orjson.dumps(snapshot.classes).decode()}
        return answers.safetensors({"labels": codes, **arrays}, metadata, version=version)
    labels = [snapshot.classes[code] if code >= 0 else None for code in codes.tolist()]
    if form == PNG:
        captions = None
        if wanted is not None:  # one row per class, in the order asked for
            places = [wanted.index(snapshot.classes[code]) for code in codes.tolist()]
            order = sorted(range(n), key=places.__getitem__)
            features, captions = features[order], [str(wanted[places[i]]) for i in order]
        content = await parts.workers.run(
            lambda: montage.draw(features, picture, captions), math.inf
        )
        return answers.png(content, version=version)
    document = {"model_version": version, "labels": labels, **arrays}
    return answers.json(document, version=version)


def _labels(texts: Sequence[str], known: Sequence[Label]) -> list[Label]:
    """The labels that the texts of a query name; a label that is no class stays as it is.

    A text that is a class as a whole is that class, even with a comma in it. An
    integer is preferred to the string that looks like it.

    Example:
        >>> _labels(["1,cat"], (1, "cat"))
        [1, 'cat']
    """
    by_text: dict[str, Label] = {str(label): label for label in known if isinstance(label, str)}
    by_text |= {str(label): label for label in known if isinstance(label, int)}
    parts: list[str] = []
    for text in texts:
        parts += [text] if text in by_text else [part.strip() for part in text.split(",")]
    return [by_text.get(part, part) for part in parts if part]
