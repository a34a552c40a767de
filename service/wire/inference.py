"""Requests and answers of the Open Inference Protocol (V2, REST), with its binary tensors.

A request is a JSON object with `inputs`, each a tensor by name, datatype and shape whose
values stand in `data`, or, with the parameter `binary_data_size`, as raw little-endian
bytes behind the JSON. An answer has the same form. Text (`BYTES`) is binary as the length
of each value, four bytes, and the value in UTF-8.

Source: KServe's "Open Inference Protocol" (REST) and "Binary tensor data extension".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import orjson

from core.errors import InvalidRequest, ShapeMismatch
from service.wire.arrays import Array
from service.wire.batch import RawBatch
from service.wire.features import check_features
from service.wire.json_type import json_type
from service.wire.limits import Limits

DATATYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "FP64": np.dtype("<f8"),
    "FP32": np.dtype("<f4"),
    "FP16": np.dtype("<f2"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
}
"""Datatypes of samples. UINT8 is as everywhere: k means k/255; other integers are themselves."""

MAX_JSON_BYTES: Final = 8 * 2**20
"""The JSON of a request at most: as Python values it takes many times as much."""

MAX_REQUEST_ID_LENGTH: Final = 200
MOST_SIDES: Final = 4
"""Of a tensor: samples, height, width and channels."""

_KEPT: Final = (np.dtype("<f4"), np.dtype("<f2"), np.dtype("u1"))
_REQUEST: Final = frozenset({"id", "parameters", "inputs", "outputs"})


@dataclass(frozen=True)
class WantedOutput:
    """An output that was asked for."""

    name: str
    binary: bool | None  # None: as the request says of all


@dataclass(frozen=True, eq=False)
class InferenceRequest:
    """A request that can be answered, as far as the protocol goes.

    Arguments:
        batch: The samples.
        id: Which the answer repeats, if there was one.
        parameters: Of the request, as they came.
        outputs: None where none were named, which asks for the usual ones.
    """

    batch: RawBatch
    id: str | None
    parameters: Mapping[str, object]
    outputs: tuple[WantedOutput, ...] | None


def parse_inference(
    body: bytes | bytearray, json_length: int | None, limits: Limits
) -> InferenceRequest:
    """A request from its body.

    Arguments:
        body: The whole body.
        json_length: Bytes of JSON at its beginning (the header Inference-Header-Content-Length);
            None where all of it is JSON.
        limits: Most samples and features accepted.

    Raises:
        InvalidRequest: It is not of the protocol.
        ShapeMismatch, NonFiniteFeature, InvalidBatch: Its tensor holds no samples.
    """
    length = len(body) if json_length is None else json_length
    if length > len(body):
        raise InvalidRequest(
            f"Inference-Header-Content-Length is {length}, the body has {len(body)} bytes. "
            f"Expected the length of the JSON at its beginning."
        )
    if length > MAX_JSON_BYTES:
        raise InvalidRequest(
            f"The JSON of the request has {length:,} bytes; at most {MAX_JSON_BYTES:,} are taken. "
            f"Send tensors as binary data behind the JSON, or fewer samples at a time."
        )
    try:
        document = orjson.loads(memoryview(body)[:length])
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(
            f"The request is no JSON: {error}. Where tensors follow as binary data, the header "
            f"Inference-Header-Content-Length says where the JSON ends."
        ) from None
    if not isinstance(document, dict):
        raise InvalidRequest(f"The request is a JSON {json_type(document)}; expected an object.")
    if unknown := sorted(document.keys() - _REQUEST):
        raise InvalidRequest(
            f"The request has a field {unknown[0][:40]!r}; expected {', '.join(sorted(_REQUEST))}."
        )
    request_id = document.get("id")
    if request_id is not None and not (
        isinstance(request_id, str) and len(request_id) <= MAX_REQUEST_ID_LENGTH
    ):
        raise InvalidRequest(
            f"`id` is no string of at most {MAX_REQUEST_ID_LENGTH} characters. Shorten it, or "
            f"leave it out."
        )
    features = _only_input(document.get("inputs"), memoryview(body)[length:])
    return InferenceRequest(
        RawBatch(check_features(features, limits)),
        request_id,
        _object(document.get("parameters"), "parameters"),
        _outputs(document.get("outputs")),
    )


def _object(value: object, name: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{name}` is a JSON {json_type(value)}; expected an object.")
    return value


def _only_input(inputs: object, binary: memoryview) -> Array:
    """The samples, from the one tensor that a request has."""
    if not isinstance(inputs, list) or len(inputs) != 1:
        count = f"{len(inputs)} tensors" if isinstance(inputs, list) else "no list"
        raise InvalidRequest(
            f"`inputs` has {count}; expected one tensor, `features`, with shape [N, D]."
        )
    tensor = _object(inputs[0], "inputs[0]")
    name = tensor.get("name")
    if not isinstance(name, str):
        raise InvalidRequest("`inputs[0].name` is no string. Expected a name, like features.")
    dtype = DATATYPES.get(str(tensor.get("datatype")))
    if dtype is None:
        raise ShapeMismatch(
            f"`inputs[0].datatype` is {str(tensor.get('datatype'))[:40]!r}; expected one of "
            f"{', '.join(DATATYPES)}."
        )
    shape = tensor.get("shape")
    if not (
        isinstance(shape, list)
        and 2 <= len(shape) <= MOST_SIDES
        and all(type(size) is int and 0 < size < 2**31 for size in shape)
    ):
        raise ShapeMismatch(
            "`inputs[0].shape` is no list of two to four positive integers. Expected [N, D], or "
            "of images [N, H, W] or [N, H, W, C]."
        )
    size = _object(tensor.get("parameters"), "inputs[0].parameters").get("binary_data_size")
    if size is None:
        values = _from_json(tensor.get("data"), dtype, shape)
        if len(binary):
            raise InvalidRequest(
                f"{len(binary)} bytes follow the JSON, and no input has the parameter "
                f"binary_data_size. Add it, or leave the bytes out."
            )
    else:
        values = _from_bytes(binary, size, dtype, shape)
    # What the service knows stays as it is, a quarter or half as large.
    with np.errstate(over="ignore"):
        return values if dtype in _KEPT else values.astype(np.float32)


def _from_json(data: object, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    if not isinstance(data, list):
        raise ShapeMismatch(
            f"`inputs[0].data` is {'missing' if data is None else 'a JSON ' + json_type(data)}; "
            f"expected a list of numbers, flat or nested by rows."
        )
    _check_numbers(data)
    try:
        values = np.array(data)
    except ValueError:
        raise ShapeMismatch(
            "`inputs[0].data` has rows of different lengths; expected a list of numbers, flat or "
            "nested by rows."
        ) from None
    if values.dtype.kind not in "iuf":  # whole numbers beyond 64 bits
        raise _no_numbers()
    if values.size != math.prod(shape) or (values.ndim > 1 and list(values.shape) != list(shape)):
        raise ShapeMismatch(
            f"`inputs[0].data` has shape {list(values.shape)}, `shape` says {list(shape)}. "
            f"Expected as many values, flat or nested alike.",
            shape=list(values.shape),
        )
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        whole = values.dtype.kind in "iu" or bool((values == np.trunc(values)).all())
        # As Python's numbers: numpy would compare a float with the float next to the limit.
        if not whole or values.min().item() < info.min or values.max().item() > info.max:
            raise ShapeMismatch(
                f"`inputs[0].data` holds values that are no {dtype.name}; expected integers from "
                f"{info.min} to {info.max}. Choose another datatype, like FP32."
            )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values.astype(dtype).reshape(shape))


def _check_numbers(data: list[Any]) -> None:
    """Raise unless nested lists hold numbers alone.

    Asked before numpy makes an array of them, in which the shortest text has as much room as the
    longest, and a boolean is a number.
    """
    for _ in range(MOST_SIDES - 1):
        if not data or type(data[0]) is not list:
            break
        if set(map(type, data)) != {list}:
            raise _no_numbers()
        data = list(chain.from_iterable(data))
    if not set(map(type, data)) <= {int, float}:
        raise _no_numbers()


def _no_numbers() -> ShapeMismatch:
    return ShapeMismatch("`inputs[0].data` holds what is no number. Expected numbers only.")


def _from_bytes(
    binary: memoryview, size: object, dtype: np.dtype[Any], shape: Sequence[int]
) -> Array:
    expected = math.prod(shape) * dtype.itemsize
    if type(size) is not int or size != expected or len(binary) != expected:
        raise ShapeMismatch(
            f"The tensor of shape {list(shape)} takes {expected:,} bytes; binary_data_size is "
            f"{str(size)[:40]}, and {len(binary):,} bytes follow the JSON. Expected three times "
            f"the same."
        )
    return np.frombuffer(binary, dtype).reshape(shape)


def _outputs(outputs: object) -> tuple[WantedOutput, ...] | None:
    if outputs is None or outputs == []:
        return None
    if not isinstance(outputs, list):
        raise InvalidRequest(f"`outputs` is a JSON {json_type(outputs)}; expected a list.")
    wanted: dict[str, WantedOutput] = {}
    for index, output in enumerate(outputs):
        where = f"outputs[{index}]"
        output = _object(output, where)
        name = output.get("name")
        if not isinstance(name, str) or name in wanted:
            raise InvalidRequest(f"`{where}.name` is no name, or one that came before.")
        parameters = _object(output.get("parameters"), f"{where}.parameters")
        binary = parameters.get("binary_data")
        if not (binary is None or isinstance(binary, bool)):
            raise InvalidRequest(f"`{where}.parameters.binary_data` is neither true nor false.")
        if parameters.get("classification"):
            raise InvalidRequest(
                f"`{where}` asks for the classification extension, which this service has not. "
                f"Ask for the output `label`, or `probabilities`."
            )
        wanted[name] = WantedOutput(name, binary)
    return tuple(wanted.values())


@dataclass(frozen=True, eq=False)
class OutputTensor:
    """A tensor of an answer.

    Arguments:
        name: Of the output.
        values: An array of FP32, FP64 or BOOL, or a list of text (BYTES).
        binary: Whether it goes as raw bytes behind the JSON.
    """

    name: str
    values: Array | list[str]
    binary: bool

    @property
    def datatype(self) -> str:
        """The protocol's name of its type."""
        if isinstance(self.values, list):
            return "BYTES"
        return {"f4": "FP32", "f8": "FP64", "b1": "BOOL"}[self.values.dtype.str[1:]]

    def raw(self) -> bytes:
        """The values as the binary extension writes them."""
        if not isinstance(self.values, list):
            return self.values.astype(self.values.dtype.newbyteorder("<"), copy=False).tobytes()
        encoded = [text.encode() for text in self.values]
        return b"".join(len(one).to_bytes(4, "little") + one for one in encoded)


def write_inference(
    document: Mapping[str, object], outputs: Sequence[OutputTensor]
) -> tuple[bytes, int | None]:
    """The body of an answer.

    Arguments:
        document: Its fields beside `outputs`.
        outputs: In the order in which they are answered.

    Returns:
        The body, and the length of the JSON at its beginning; None where all of it is JSON.
    """
    described: list[dict[str, object]] = []
    raw: list[bytes] = []
    for tensor in outputs:
        values = tensor.values
        shape = [len(values)] if isinstance(values, list) else list(values.shape)
        one: dict[str, object] = {"name": tensor.name, "datatype": tensor.datatype, "shape": shape}
        if tensor.binary:
            raw.append(tensor.raw())
            one["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            one["data"] = values if isinstance(values, list) else values.ravel()
        described.append(one)
    head = orjson.dumps({**document, "outputs": described}, option=orjson.OPT_SERIALIZE_NUMPY)
    return (head, None) if not raw else (b"".join((head, *raw)), len(head))
