"""Images of another size than the service's are refused before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from clients.data.files import Source
from clients.data.formats.image import ImageSource
from clients.http.answers import IngestState
from clients.http.client import GMRClient
from clients.http.errors import InputError
from clients.sending.new_model import state_for_sender


def check_image_shape(client: GMRClient, source: Source) -> None:
    """Compare the size of image files with that of the service's samples.

    Raises:
        InputError: They have another number of features; the message says how to bring them to it.
        ClientError: The service is away.
    """
    if isinstance(source, ImageSource):
        check_shape(state_for_sender(client), source.image_shape, source.path)


def check_shape(model: IngestState, shape: tuple[int, ...], path: Path) -> None:
    """Compare the shape of an image with that of a model's samples.

    Arguments:
        model: The model.
        shape: (H, W) or (H, W, 3).
        path: Of the image, or of the folder that holds it.

    Raises:
        InputError: It has another number of features; the message says how to bring it to theirs.
    """
    n_features = math.prod(shape)
    if model.features in (None, n_features):
        return
    known = model.image_shape
    what, advice = (
        f"{model.features:,} features",
        "Send images of that many pixels (--size, --grey).",
    )
    if known:
        what = f"images of {shown(known)}"
        grey = " --grey" if len(known) == 2 and len(shape) == 3 else ""
        size = f" --size {known[0]},{known[1]}" if [*shape[:2]] != [*known[:2]] else ""
        if size or grey:
            advice = f"Bring them to it with{size}{grey}."
    raise InputError(
        f"{path} holds images of {shown(shape)}, {n_features:,} features each; nothing was sent. "
        f"The service expects {what}. {advice}"
    )


def shown(shape: Sequence[int]) -> str:
    """The shape of an image in words.

    Example:
        >>> shown((28, 28)), shown((32, 48, 3))
        ('28 x 28 pixels in grey', '32 x 48 pixels in colour')
    """
    return f"{shape[0]} x {shape[1]} pixels in {'grey' if len(shape) == 2 else 'colour'}"
