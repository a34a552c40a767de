"""Tests for clients.data.formats.image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from clients.data.files import open_source
from clients.data.folder import holds_images
from clients.data.formats.image import ImageForm, ImageSource, images_of, read_image
from clients.http.errors import InputError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (4, 6)).astype(np.uint8)
COLOUR = RNG.integers(0, 256, (4, 6, 3)).astype(np.uint8)


def saved(path: Path, pixels: np.ndarray[Any, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def everything(source: ImageSource, size: int, start: int = 0) -> list[Any]:
    """Start, how many samples, labels, places and skipped of each piece."""
    return [
        (rows.start, len(rows), [*(rows.labels if rows.labels is not None else ())], rows.skipped)
        for rows in source.read(size, start)
    ]


@pytest.mark.parametrize("ending", ["png", "bmp", "tiff", "webp"])
@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
def test_pixels_are_those_that_were_saved(
    tmp_path: Path, ending: str, pixels: np.ndarray[Any, Any]
) -> None:
    options = {"lossless": True} if ending == "webp" else {}
    path = saved(tmp_path / f"A.{ending.upper()}", pixels, **options)
    found = read_image(path)
    if ending == "webp" and pixels is GREY:  # which knows no grey levels
        found = found[..., 0]
    np.testing.assert_array_equal(found, pixels)
    assert found.dtype == np.uint8
    source = open_source(path)
    assert (source.kind, source.n_samples, source.labelled) == ("image", 1, False)
    [rows] = source.read(10)
    assert rows.features.shape == (1, *read_image(path).shape)
    assert source.n_features == rows.features[0].size


def test_an_image_is_taken_as_it_is_shown(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it to the right
    turned = saved(tmp_path / "turned.png", GREY, exif=exif)
    np.testing.assert_array_equal(read_image(turned), np.rot90(GREY, -1))
    assert ImageSource(turned).image_shape == (6, 4)
    clear = np.dstack([COLOUR, np.where(np.arange(6) < 3, 255, 0) * np.ones((4, 1))])
    seen = read_image(saved(tmp_path / "clear.png", clear.astype(np.uint8)))
    np.testing.assert_array_equal(seen[:, :3], COLOUR[:, :3])
    assert (seen[:, 3:] == 255).all()
    deep = saved(tmp_path / "deep.png", GREY.astype(np.uint16) * 257)
    np.testing.assert_array_equal(read_image(deep), GREY)
    black_and_white = saved(tmp_path / "bits.png", GREY > 100)
    np.testing.assert_array_equal(read_image(black_and_white), np.where(GREY > 100, 255, 0))
    palette = tmp_path / "palette.gif"
    first, second = Image.fromarray(GREY).convert("P"), Image.fromarray(255 - GREY).convert("P")
    first.save(palette, save_all=True, append_images=[second])
    np.testing.assert_array_equal(read_image(palette, ImageForm(grey=True)), GREY)
    measured = saved(tmp_path / "measured.tiff", GREY.astype(np.float32))
    with pytest.raises(InputError, match="pixels of kind 'F'"):
        read_image(measured)


def test_a_size_and_grey_levels_are_brought_about(tmp_path: Path) -> None:
    plain = np.full((8, 12, 3), 90, np.uint8)
    plain[:, 6:] = 200
    path = saved(tmp_path / "a.png", plain)
    small = read_image(path, ImageForm(size=(2, 4), grey=True))
    assert small.shape == (2, 4)
    np.testing.assert_array_equal(small[:, [0, 3]], [[90, 200], [90, 200]])
    source = open_source(path, images=ImageForm(size=(2, 4)))
    assert isinstance(source, ImageSource)
    assert source.image_shape == (2, 4, 3)


def test_the_folders_are_the_classes(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/old/2.png", "7/1.png", "loose.png", ".git/x.png", "7/.x.png"):
        saved(tmp_path / name, GREY)
    saved(tmp_path / "__MACOSX" / "a.png", GREY)
    (tmp_path / "notes.txt").write_text("of cats")
    source = open_source(tmp_path, id_column="path")
    [rows] = source.read(10)
    assert rows.ids == ["7/1.png", "cat/1.png", "cat/old/2.png", "loose.png"]
    assert rows.labels == [7, "cat", "cat", None]
    assert source.labelled
    assert [*source.read_ids()] == [rows.ids]
    assert holds_images(tmp_path)
    [alone] = open_source(tmp_path / "cat" / "old").read(10)
    assert alone.labels is None
    assert alone.ids is None
    # One image in colour makes all so.
    saved(tmp_path / "cat" / "3.png", COLOUR)
    [rows] = open_source(tmp_path).read(10)
    assert rows.features.shape == (5, 4, 6, 3)
    np.testing.assert_array_equal(rows.features[0, :, :, 1], GREY)
    [rows] = open_source(tmp_path, images=ImageForm(grey=True)).read(10)
    assert rows.features.shape == (5, 4, 6)


def test_numbers_in_names_are_numbers_and_a_seed_gives_one_order(tmp_path: Path) -> None:
    for number in range(12):
        saved(tmp_path / f"frame{number}.png", GREY)
    names = [file.name for file in images_of(tmp_path)]
    assert names == [f"frame{number}.png" for number in range(12)]
    orders = [
        [file.name for file in ImageSource(tmp_path, shuffle=seed).files] for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2] != names
    assert sorted(orders[0]) == sorted(names)


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 3))
def test_what_cannot_be_used_is_left_out_and_counted(
    tmp_path_factory: pytest.TempPathFactory, good: list[bool], size: int, pieces: int
) -> None:
    folder = tmp_path_factory.mktemp("images")
    for number, fine in enumerate(good):
        path = saved(folder / str(number % 2) / f"{number:02}.png", GREY + number)
        if not fine:
            path.write_bytes(path.read_bytes()[: 20 if number % 3 else 60])
    if not any(good):
        with pytest.raises(InputError, match="None of the"):
            [*ImageSource(folder, skip_bad=True).read(size)]
        return
    source = ImageSource(folder, skip_bad=True)
    order = [int(file.stem) for file in source.files]
    wanted = [number for number in order if good[number]]
    found, covered, starts = [], 0, []
    for rows in source.read(size):
        assert rows.places is not None
        assert len(rows) == min(size, len(wanted) - len(found))
        starts.append(rows.start)
        covered += len(rows) + rows.skipped
        found += [order[place] for place in rows.places]
        assert [*(rows.labels if rows.labels is not None else [])] == [
            order[place] % 2 for place in rows.places
        ]
        np.testing.assert_array_equal(rows.features[-1], GREY + found[-1])
    assert found == wanted
    assert covered == len(good)
    # Reading may begin wherever a piece does.
    start = starts[pieces % len(starts)]
    assert everything(source, size, start) == everything(source, size)[pieces % len(starts) :]
    if not all(good):
        with pytest.raises(InputError, match=r"cannot be read|no image"):
            [*ImageSource(folder).read(size)]


def test_an_image_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "a.png", GREY)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", GREY.size // 3)
    with pytest.raises(InputError, match="too many pixels"):
        open_source(path)


def test_what_cannot_be_one_stream_is_refused(tmp_path: Path) -> None:
    a, b = saved(tmp_path / "p" / "a.png", GREY), saved(tmp_path / "p" / "b.png", GREY.T)
    with pytest.raises(InputError, match=r"a.png is 4 x 6 pixels .*b.png 6 x 4.*--size"):
        open_source(tmp_path / "p")
    [rows] = open_source(tmp_path / "p", skip_bad_rows=True).read(10)
    assert (len(rows), rows.skipped) == (1, 1)
    [rows] = open_source(tmp_path / "p", images=ImageForm(size=(4, 4))).read(10)
    assert rows.features.shape == (2, 4, 4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="a folder without images"):
        open_source(tmp_path / "empty")
    assert not holds_images(tmp_path / "empty")
    (tmp_path / "p" / "t.csv").write_text("1,2\n")
    with pytest.raises(InputError, match=r"holds images .* and other files"):
        holds_images(tmp_path / "p")
    for options, complaint in (
        ({"label_column": "y"}, "the folders in it"),
        ({"labels": a}, "the folders in it"),
        ({"id_column": "y"}, "--id-column path"),
        ({"columns": ["y"]}, "no table"),
        ({"decimal": ","}, "no text"),
    ):
        with pytest.raises(InputError, match=complaint):
            open_source(b, **options)  # type: ignore[arg-type]
    table = tmp_path / "p" / "t.csv"
    for others in ({"images": ImageForm(grey=True)}, {"shuffle": 0}):
        with pytest.raises(InputError, match="no image"):
            open_source(table, **others)  # type: ignore[arg-type]
    nameless = tmp_path / "nameless"
    nameless.write_bytes(a.read_bytes())
    assert open_source(nameless).kind == "image"
