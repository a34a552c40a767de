"""Sizes of images as they are typed."""

from __future__ import annotations

from clients.data.formats.image import ImageForm
from clients.http.errors import InputError


def shape_of(text: str | None, *, colours: bool = True) -> tuple[int, ...] | None:
    """A shape as it is typed; None where none is.

    Arguments:
        text: Whole numbers, separated by commas.
        colours: Whether a third number may say so.

    Raises:
        InputError: It is none.

    Example:
        >>> shape_of("28,28"), shape_of("32,32,3")
        ((28, 28), (32, 32, 3))
    """
    if text is None:
        return None
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if len(shape) not in ((2, 3) if colours else (2,)) or min(shape) < 1:
        more = ", or HEIGHT,WIDTH,3" if colours else ""
        raise InputError(
            f"The shape {text!r} is not a height and a width in pixels. Expected HEIGHT,WIDTH, "
            f"like 28,28{more}."
        )
    return shape


def form_of(size: str | None, grey: bool) -> ImageForm:
    """What images are made into, as it is typed.

    Raises:
        InputError: The size is none.
    """
    shape = shape_of(size, colours=False)
    return ImageForm(None if shape is None else (shape[0], shape[1]), grey)
