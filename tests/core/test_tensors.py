"""Tests for the core.tensors module: bytes that can be trusted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from core.errors import InvalidCheckpoint, OtherRelease
from core.tensors import ALIGNMENT, Verifier, pack, unpack

FORMAT = "test-1"


def some() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "means": torch.randn(3, 4, generator=generator),
        "counts": torch.arange(5),
        "wide": torch.randn(2, dtype=torch.float64, generator=generator),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "flags": torch.tensor([True, False]),
        "half": torch.ones(2, dtype=torch.float16),
        "nothing": torch.zeros(0, 4),
        "number": torch.tensor(2.5),
    }


def test_tensors_and_text_come_back_as_they_were() -> None:
    text = {"a": "1", "é\n": '{"quoted": "\\"}', "": ""}
    tensors, back = unpack(FORMAT, pack(FORMAT, some(), text))
    assert back == text
    assert tensors.keys() == some().keys()
    for name, tensor in some().items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert torch.equal(tensors[name], tensor)


def test_the_same_content_is_the_same_bytes_whatever_the_order() -> None:
    text = {f"key {index}": str(index) for index in range(20)}
    shuffled = dict(random.Random(1).sample(list(text.items()), len(text)))
    reordered = dict(reversed(some().items()))
    assert pack(FORMAT, some(), text) == pack(FORMAT, reordered, shuffled)


def test_it_is_an_ordinary_safetensors_file() -> None:
    data = pack(FORMAT, some(), {"a": "b"})
    assert torch.equal(load(data)["means"], some()["means"])


def test_every_truncation_is_refused() -> None:
    data = pack(FORMAT, some(), {"a": "b"})
    for length in range(len(data)):
        with pytest.raises(InvalidCheckpoint):
            unpack(FORMAT, data[:length])


def test_every_byte_is_guarded() -> None:
    """Also those that say only the type or the shape of a tensor, and the padding between."""
    data = pack(FORMAT, some(), {"a": "b"})
    for place in range(len(data)):
        for flip in (1, 0x80):
            damaged = bytearray(data)
            damaged[place] ^= flip
            with pytest.raises(InvalidCheckpoint):
                unpack(FORMAT, bytes(damaged))


@pytest.mark.parametrize(
    ("one", "other"), [(b"I64", b"F64"), (b"F32", b"I32"), (b"[3,4]", b"[4,3]")]
)
def test_a_tensor_of_another_type_or_shape_with_the_same_bytes_is_refused(
    one: bytes, other: bytes
) -> None:
    data = pack(FORMAT, some(), {})
    assert one in data
    damaged = data.replace(one, other, 1)
    load(damaged)  # well-formed
    with pytest.raises(InvalidCheckpoint, match="damaged"):
        unpack(FORMAT, damaged)


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(InvalidCheckpoint, match="not a file of this service"):
        unpack(FORMAT, noise)


def test_files_that_others_wrote_are_refused() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    for metadata in (
        None,
        {},
        {"gmr": "no json"},
        {"gmr": "[]"},
        {"gmr": "{}"},
        {"gmr": json.dumps({"format": FORMAT, "text": {}, "crc32": "x"})},
        {"gmr": json.dumps({"format": FORMAT, "text": {}, "crc32": "0000000000"})},
        {"gmr": deep},
    ):
        with pytest.raises(InvalidCheckpoint):
            unpack(FORMAT, save({"x": torch.zeros(1)}, metadata))


def test_another_format_is_refused_by_name() -> None:
    with pytest.raises(InvalidCheckpoint, match="format 'test-1'; expected 'test-2'") as caught:
        unpack("test-2", pack(FORMAT, some(), {}))
    assert caught.value.context == {"expected": "test-2", "got": "test-1"}


@pytest.mark.parametrize("read", [unpack, lambda format, data: Verifier(format).feed(data)])
def test_another_number_of_a_format_is_another_releases(
    read: Callable[[str, bytes], object],
) -> None:
    data = pack("gmr-test-3", some(), {})
    with pytest.raises(OtherRelease, match="'gmr-test-3'; expected 'gmr-test-1'"):
        read("gmr-test-1", data)
    for format in ("gmr-other-1", "test-1", "gmr-test-x-1"):
        with pytest.raises(InvalidCheckpoint) as caught:
            read(format, data)
        assert type(caught.value) is InvalidCheckpoint


def test_a_damaged_file_of_another_number_is_nobodys() -> None:
    data = bytearray(pack("gmr-test-3", some(), {}))
    data[-1] ^= 1
    with pytest.raises(InvalidCheckpoint) as caught:
        unpack("gmr-test-1", bytes(data))
    assert type(caught.value) is InvalidCheckpoint


def test_tensors_that_share_memory_are_stored_apart() -> None:
    base = torch.arange(12.0)
    shared = {
        "all": base,
        "again": base,
        "end": base[6:],
        "middle": base[3:9],
        "rows": base.view(3, 4),
    }
    tensors, _ = unpack(FORMAT, pack(FORMAT, shared, {}))
    for name, tensor in shared.items():
        assert torch.equal(tensors[name], tensor)


def test_tensors_that_lie_transposed_or_need_a_gradient_can_be_stored() -> None:
    awkward = {"t": torch.arange(6.0).view(2, 3).T, "g": torch.ones(2, requires_grad=True)}
    tensors, _ = unpack(FORMAT, pack(FORMAT, awkward, {}))
    assert torch.equal(tensors["t"], awkward["t"])
    assert tensors["g"].tolist() == [1, 1]


def test_a_text_that_looks_like_the_checksum_confuses_nobody() -> None:
    text = {"a": '\\"crc32\\": \\"1234567890\\"', "crc32": "0000000000"}
    assert unpack(FORMAT, pack(FORMAT, {'"crc32": "': torch.zeros(1)}, text))[1] == text


def test_tensors_are_put_on_the_device_that_was_asked_for(device: torch.device) -> None:
    tensors, _ = unpack(FORMAT, pack(FORMAT, some(), {}), device)
    assert all(tensor.device.type == device.type for tensor in tensors.values())


def verify(data: bytes, size: int) -> None:
    """The check of a file that comes in pieces of so many bytes."""
    verifier = Verifier(FORMAT)
    for start in range(0, len(data), size):
        verifier.feed(data[start : start + size])
    verifier.finish()


@given(size=st.integers(1, 3000))
def test_a_file_is_checked_while_it_comes_whatever_its_pieces(size: int) -> None:
    verify(pack(FORMAT, some(), {"a": "b"}), size)
    verify(pack(FORMAT, {}, {}), size)


@given(place=st.integers(0), flip=st.integers(1, 255), size=st.sampled_from([1, 7, 64, 5000]))
def test_damage_is_seen_while_a_file_comes(place: int, flip: int, size: int) -> None:
    data = bytearray(pack(FORMAT, some(), {"a": "b"}))
    data[place % len(data)] ^= flip
    with pytest.raises(InvalidCheckpoint):
        verify(bytes(data), size)


@given(length=st.integers(0), size=st.sampled_from([1, 7, 64, 5000]))
def test_a_part_of_a_file_is_refused_while_it_comes(length: int, size: int) -> None:
    data = pack(FORMAT, some(), {"a": "b"})
    with pytest.raises(InvalidCheckpoint):
        verify(data[: length % len(data)], size)
    with pytest.raises(InvalidCheckpoint, match="it should have"):
        verify(data + b"more", size)


@given(data=st.binary(max_size=300), size=st.sampled_from([1, 7, 300]))
def test_bytes_that_are_no_file_are_refused_while_they_come(data: bytes, size: int) -> None:
    with pytest.raises(InvalidCheckpoint):
        verify(data, size)


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (33, 3)])
def test_what_is_read_begins_where_memory_of_torch_does(shape: tuple[int, ...]) -> None:
    """MKL promises the same bits of products only where their numbers begin alike in memory."""
    many = {f"x{n}": torch.ones(shape, dtype=torch.float64) for n in range(20)}
    found, _ = unpack(FORMAT, pack(FORMAT, many, {}))
    assert {tensor.data_ptr() % ALIGNMENT for tensor in found.values()} == {0}


def test_a_header_that_never_ends_is_not_waited_for() -> None:
    verifier = Verifier(FORMAT)
    with pytest.raises(InvalidCheckpoint, match="header would be too large"):
        verifier.feed((2**63).to_bytes(8, "little"))
    with pytest.raises(InvalidCheckpoint, match="'other-1'"):
        verify(pack("other-1", some(), {}), 100)
