"""Image files, one sample each: one, or all of a folder. Needs Pillow, an optional library.

Rules of this module:

1. Samples are uint8, (H, W) in grey levels or (H, W, 3) in colour. One image in colour makes all
   of a folder so.
2. An image is taken as it is shown: turned as its camera says, on white where it is transparent.
   Of an animation it is the first picture.
3. The label is the folder in the folder: `photos/cat/1.jpg` is a cat. An image that lies in
   `photos` itself has none.
4. What cannot be seen from the beginning of a file (its size, its colours) is found when its turn
   comes; the rest before anything is sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from clients.data.formats.rows import READ_IDS, Label, Rows
from clients.extras import naming_the_extra
from clients.http.errors import InputError
from service.wire import SampleId

if TYPE_CHECKING:
    from PIL import Image

IMAGE_ENDINGS: Final = (
    *(".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".pgm", ".ppm", ".pnm"),
)

PATH_COLUMN: Final = "path"
"""What the ids of images are called: their paths in the folder."""

_ORIENTATION: Final = 0x0112
_ON_ITS_SIDE: Final = (5, 6, 7, 8)
_GREY_MODES: Final = frozenset({"1", "L", "LA", "I;16", "I;16B", "I;16L"})
_COLOUR_MODES: Final = frozenset({"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB", "RGBX"})


@dataclass(frozen=True)
class ImageForm:
    """What images are made into before they are sent.

    Attributes:
        size: Height and width in pixels that all are stretched or shrunk to; None: as they are.
        grey: Turn colours into grey levels.
    """

    size: tuple[int, int] | None = None
    grey: bool = False


AS_THEY_ARE: Final = ImageForm()


class ImageSource:
    """Samples of image files.

    Arguments:
        path: A file or a folder.
        form: What images are made into.
        with_ids: The id of each is its path in the folder.
        skip_bad: Leave out images that cannot be used, in place of an error.
        shuffle: Seed of a random order; None: by path.

    Attributes:
        files: The images, in their order.
        image_shape: Of each of them, (H, W) or (H, W, 3).

    Raises:
        InputError: There is none, one cannot be read, or they are not of one size.
    """

    kind = "image"
    feature_names: tuple[str, ...] | None = None

    def __init__(
        self,
        path: Path,
        form: ImageForm = AS_THEY_ARE,
        *,
        with_ids: bool = False,
        skip_bad: bool = False,
        shuffle: int | None = None,
    ) -> None:
        self.path = path
        self.files = images_of(path) if path.is_dir() else [path]
        if not self.files:
            raise InputError(
                f"{path} is a folder without images. Expected files that end in "
                f"{', '.join(IMAGE_ENDINGS)}, in it or in one folder for each class. Check the "
                f"path."
            )
        if shuffle is not None:
            order = np.random.default_rng(shuffle).permutation(len(self.files))
            self.files = [self.files[index] for index in order]
        self._form, self._with_ids, self._skip = form, with_ids, skip_bad
        self.n_samples: int | None = len(self.files)
        self._labels = self._all_labels()
        self.labelled = self._labels is not None
        self.image_shape = self._looked_at()
        self.n_features = int(np.prod(self.image_shape))

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        places: list[int] = []
        images: list[NDArray[np.uint8]] = []
        first, skipped = start, 0
        for place in range(start, len(self.files)):
            try:
                image = self._image(place)
            except InputError:
                if not self._skip:
                    raise
                skipped += 1
                continue
            if len(images) == size:
                yield self._rows(first, images, places, skipped)
                first, skipped, images, places = place, 0, [], []
            images.append(image)
            places.append(place)
        if images:
            yield self._rows(first, images, places, skipped)

    def read_ids(self) -> Iterator[list[SampleId]]:
        if self._with_ids:
            for first in range(0, len(self.files), READ_IDS):
                yield self._ids(range(first, min(first + READ_IDS, len(self.files))))

    def _rows(
        self, first: int, images: list[NDArray[np.uint8]], places: list[int], skipped: int
    ) -> Rows:
        labels = None
        if self._labels is not None:
            labels = [self._labels[place] for place in places]
        ids = self._ids(places) if self._with_ids else None
        return Rows(first, np.stack(images), labels, ids, skipped, places)

    def _ids(self, places: Sequence[int]) -> list[SampleId]:
        return [self._within(self.files[place]).as_posix() for place in places]

    def _within(self, file: Path) -> Path:
        return file.relative_to(self.path if self.path.is_dir() else self.path.parent)

    def _all_labels(self) -> list[Label | None] | None:
        """The class of each, as the folders say; None where none has one."""
        parts = [self._within(file).parts for file in self.files]
        labels = [label_of(part[0]) if len(part) > 1 else None for part in parts]
        return None if all(label is None for label in labels) else labels

    def _looked_at(self) -> tuple[int, ...]:
        """The shape of all, from how each begins."""
        found: dict[tuple[int, int], Path] = {}
        colour = False
        for file in self.files:
            try:
                with _opened(file) as image:
                    size, in_colour = _shown_size(image), _in_colour(image, file)
            except InputError:
                if self._skip:
                    continue
                raise
            colour |= in_colour
            found.setdefault(self._form.size or size, file)
            if len(found) > 1 and not self._skip:
                raise _of_two_sizes(found)
        if not found:
            raise InputError(f"None of the {len(self.files)} images of {self.path} can be used.")
        # Where others are left out, the first says how large all are.
        size = next(iter(found))
        return (*size, 3) if colour and not self._form.grey else size

    def _image(self, place: int) -> NDArray[np.uint8]:
        """One of them.

        Raises:
            InputError: It cannot be used.
        """
        file = self.files[place]
        pixels = read_image(file, self._form, colour=len(self.image_shape) == 3)
        if pixels.shape != self.image_shape:
            sizes = {self.image_shape[:2]: self.files[0], pixels.shape[:2]: file}
            raise _of_two_sizes(sizes)
        return pixels


def images_of(folder: Path) -> list[Path]:
    """The image files of a folder and of those in it, by path, numbers in names as numbers.

    What begins with a dot is left out.

    Raises:
        InputError: A folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise InputError(
            f"{error.filename} cannot be read as a folder: {error.strerror}. Name a folder with "
            f"images, or a file."
        )

    found = []
    for here, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        found += [Path(here, name) for name in names if is_image(name)]
    return sorted(found, key=lambda file: [_in_order(part) for part in file.parts])


def is_image(name: str) -> bool:
    """Whether a file is an image, by its name.

    Example:
        >>> is_image("A.PNG"), is_image("a.csv"), is_image("._a.png")
        (True, False, False)
    """
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def read_image(
    file: Path, form: ImageForm = AS_THEY_ARE, *, colour: bool | None = None
) -> NDArray[np.uint8]:
    """The pixels of an image file, (H, W) in grey levels or (H, W, 3) in colour.

    Arguments:
        file: Of a format that Pillow reads.
        form: What it is made into.
        colour: Whether it becomes (H, W, 3); None: as it is.

    Raises:
        InputError: It cannot be read, or is in colour and must not be.
    """
    with _opened(file) as image:
        in_colour = _in_colour(image, file)
        colour = (in_colour if colour is None else colour) and not form.grey
        shown = _plain(_turned(image), file).convert("RGB" if colour else "L")
        if form.size is not None:
            shown = shown.resize(form.size[::-1], _smooth())
        return np.asarray(shown)


@contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    """An open image; what goes wrong while it is read is told as `InputError`."""
    with naming_the_extra(f"Reading images such as {file}", "images"):
        from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            yield image
    except UnidentifiedImageError:
        raise InputError(
            f"{file} is no image that can be read; expected one of {', '.join(IMAGE_ENDINGS)}. "
            f"Check that it is complete and that its ending says what it is; or leave such files "
            f"out with --skip-bad-rows."
        ) from None
    except Image.DecompressionBombError as error:
        raise InputError(f"{file} has too many pixels ({error}). Save it smaller.") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(
            f"{file} cannot be read as an image ({error}). Check that it is complete, or leave "
            f"such files out with --skip-bad-rows."
        ) from None


def _shown_size(image: Image.Image) -> tuple[int, int]:
    """Height and width, turned as the camera says."""
    width, height = image.size
    on_its_side = image.getexif().get(_ORIENTATION) in _ON_ITS_SIDE
    return (width, height) if on_its_side else (height, width)


def _in_colour(image: Image.Image, file: Path) -> bool:
    """Whether an image has colours.

    Raises:
        InputError: Its pixels are no levels between black and white.
    """
    if image.mode in _GREY_MODES:
        return False
    if image.mode in _COLOUR_MODES:
        return True
    raise InputError(
        f"{file} holds pixels of kind {image.mode!r}, of which nobody says what is white. "
        f"Expected grey levels or colours of 8 bits, or grey levels of 16. Save it so, or as an "
        f"array (.npy)."
    )


def _turned(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _plain(image: Image.Image, file: Path) -> Image.Image:
    """An image of 8 bits, on white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        levels = np.asarray(image).astype(np.float64) / 257  # 65,535 is white
        return Image.fromarray(np.rint(levels).astype(np.uint8))
    if image.has_transparency_data:
        shown = image.convert("RGBA")
        white = Image.new("RGBA", shown.size, "white")
        return Image.alpha_composite(white, shown)
    return image


def _smooth() -> Image.Resampling:
    from PIL import Image

    return Image.Resampling.BILINEAR  # when an image is shrunk, the mean of what a pixel covers


def label_of(folder: str) -> Label:
    """The class that a folder is called after: a whole number, or text.

    Example:
        >>> label_of("00042"), label_of("3.5"), label_of("nan"), label_of("1_2")
        (42, '3.5', 'nan', '1_2')
    """
    return int(folder) if folder.isascii() and folder.isdigit() and len(folder) < 19 else folder


def _of_two_sizes(found: dict[Any, Path]) -> InputError:
    (a, first), (b, second) = [*found.items()][:2]
    return InputError(
        f"{first} is {a[0]} x {a[1]} pixels (height, width), {second} {b[0]} x {b[1]}; expected "
        f"one size. Bring all to one with --size HEIGHT,WIDTH."
    )


def _in_order(name: str) -> list[tuple[int, int, str]]:
    """A key by which `frame9` comes before `frame10`.

    Example:
        >>> sorted(["f10", "f9", "e"], key=_in_order)
        ['e', 'f9', 'f10']
    """
    pieces = re.split(r"(\d+)", name)
    return [(0, int(one), one) if one.isdecimal() else (1, 0, one) for one in pieces if one]
