"""Labels that come after their samples, and names for proposed classes.

`{"sample_ids": [...], "labels": [...], "batch_id": "..."}` labels samples that were sent with
these ids; `{"proposal": 3, "label": "x", "batch_id": "..."}` names a proposed class, or with
null dismisses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from core.errors import InvalidBatch, InvalidLabels, InvalidRequest
from service.wire.batch_id import check_id
from service.wire.fields import (
    Fields,
    begin,
    by_name,
    check_checksum,
    checksum,
    number_of,
    text_of,
)
from service.wire.json_body import read_list
from service.wire.json_object import JsonObject
from service.wire.json_type import json_type
from service.wire.labels import Label, encode_labels
from service.wire.limits import NO_LIMITS, Limits
from service.wire.sample_ids import SampleId, check_sample_ids
from service.wire.unknown import refuse_unknown

MAX_PROPOSAL = 10**15


@dataclass(frozen=True)
class RawLabels:
    """Labels for samples that are named by id.

    Arguments:
        sample_ids: N names of samples, each once.
        labels: The label of each.
        batch_id: The sender's name for this request, by which a repeat is recognised.

    Example:
        >>> labels = RawLabels.of([7, "b-1"], ["cat", "dog"])
        >>> RawLabels.from_entry(labels.to_entry()) == labels
        True
    """

    sample_ids: tuple[SampleId, ...]
    labels: tuple[Label, ...]
    batch_id: str | None = None

    def __len__(self) -> int:
        return len(self.sample_ids)

    @classmethod
    def of(cls, sample_ids: object, labels: object, batch_id: object = None) -> RawLabels:
        """Checked labels from plain values.

        Raises:
            InvalidBatch: Names of samples that cannot be used, or none at all.
            InvalidLabels: Labels of a wrong number or type.
        """
        plain = _listed(labels, "labels")
        ids = check_sample_ids(sample_ids, len(plain))
        if ids is None:
            raise InvalidBatch(
                "`sample_ids` names no sample; expected one id per label. Name the samples that "
                "the labels are for."
            )
        encode_labels(plain, len(plain))
        for position, (id, label) in enumerate(zip(ids, plain, strict=True)):
            if id is None or label is None:
                raise InvalidLabels(
                    f"Position {position} has no {'label' if id is not None else 'sample id'}; "
                    f"expected both for every sample. Leave out what is not known.",
                    position=position,
                )
        return cls(tuple(id for id in ids if id is not None), tuple(plain), check_id(batch_id))

    def to_json(self) -> bytes:
        """The body of a request."""
        document: dict[str, Any] = {"sample_ids": self.sample_ids, "labels": self.labels}
        if self.batch_id is not None:
            document["batch_id"] = self.batch_id
        return orjson.dumps(document)

    def to_entry(self) -> dict[str, bytes | memoryview]:
        """The fields of a stream entry."""
        ids, labels = orjson.dumps(self.sample_ids), orjson.dumps(self.labels)
        entry = begin("labels")
        entry |= {"ids": ids, "labels": labels, "crc": checksum(ids, labels)}
        if self.batch_id is not None:
            entry["id"] = self.batch_id.encode()
        return entry

    @classmethod
    def from_entry(cls, entry: Fields, limits: Limits = NO_LIMITS) -> RawLabels:
        """The labels that a stream entry holds.

        Raises:
            InvalidBatch: The entry is damaged, or holds none.
        """
        fields = by_name(entry)
        ids, labels = fields.get("ids", b""), fields.get("labels", b"")
        check_checksum(fields, ids, labels)
        request = cls.of(_loaded(ids), _loaded(labels), text_of(fields, "id"))
        limits.check(len(request), 0)
        return request


@dataclass(frozen=True)
class RawName:
    """A name for a proposed class.

    Arguments:
        proposal: Its number.
        label: What its samples are; None: no class of their own.
        batch_id: The sender's name for this request, by which a repeat is recognised.
    """

    proposal: int
    label: Label | None
    batch_id: str | None = None

    def __len__(self) -> int:
        return 1

    @classmethod
    def of(cls, proposal: object, label: object, batch_id: object = None) -> RawName:
        """A checked name from plain values.

        Raises:
            InvalidRequest: The proposal is no number of one.
            InvalidLabels: The label is none.
        """
        if (
            isinstance(proposal, bool)
            or not isinstance(proposal, int)
            or not 0 <= proposal < MAX_PROPOSAL
        ):
            raise InvalidRequest(
                f"`proposal` is {str(proposal)[:40]}; expected the number of an open proposal. "
                f"GET /drift/proposals lists them.",
                field="proposal",
            )
        if label == "":
            raise InvalidLabels(
                "The name of the proposal is an empty string; expected an integer, a string with "
                "a character or null. Send null to dismiss the proposal.",
                field="label",
            )
        plain: list[Any] = [label]
        encode_labels(plain, 1)
        return cls(proposal, plain[0], check_id(batch_id))

    def to_json(self) -> bytes:
        """The body of a request."""
        document: dict[str, Any] = {"proposal": self.proposal, "label": self.label}
        if self.batch_id is not None:
            document["batch_id"] = self.batch_id
        return orjson.dumps(document)

    def to_entry(self) -> dict[str, bytes | memoryview]:
        """The fields of a stream entry."""
        labels = orjson.dumps([self.label])
        entry = begin("name")
        entry |= {
            "proposal": b"%d" % self.proposal,
            "labels": labels,
            "crc": checksum(b"%d" % self.proposal, labels),
        }
        if self.batch_id is not None:
            entry["id"] = self.batch_id.encode()
        return entry

    @classmethod
    def from_entry(cls, entry: Fields) -> RawName:
        """The name that a stream entry holds.

        Raises:
            InvalidBatch: The entry is damaged.
        """
        fields = by_name(entry)
        labels = fields.get("labels", b"")
        check_checksum(fields, fields.get("proposal", b""), labels)
        plain = _listed(_loaded(labels), "labels")
        if len(plain) != 1:
            raise InvalidBatch(f"The entry names a proposal {len(plain)} times; expected one name.")
        return cls.of(number_of(fields, "proposal"), plain[0], text_of(fields, "id"))


def parse_labels(body: bytes | bytearray, limits: Limits) -> RawLabels | RawName:
    """The body of POST /labels, of either form.

    Raises:
        InvalidBatch, InvalidLabels, InvalidRequest: It cannot be used.
    """
    advice = "Send an object with `sample_ids` and `labels`, or with `proposal` and `label`"
    known = ("sample_ids", "labels", "proposal", "label", "batch_id")
    text = JsonObject(body, known, advice)
    document = text.read(
        {
            "sample_ids": lambda array: read_list(array.scalars(), limits, check_sample_ids),
            "labels": lambda array: read_list(array.scalars(), limits, encode_labels),
            "label": lambda array: encode_labels([[]], 1),  # type: ignore[list-item]  # raises
        }
    )
    request = _read(document)
    text.check()
    return request


def _read(document: Mapping[str, Any]) -> RawLabels | RawName:
    """Labels, or a name, from what the body says."""
    if "proposal" in document:
        refuse_unknown("field", document, {"proposal", "label", "batch_id"})
        if "label" not in document:
            raise InvalidRequest(
                "The body names a proposal but no label; expected a class, or null to dismiss it. "
                "Add `label`.",
                field="label",
            )
        return RawName.of(document["proposal"], document["label"], document.get("batch_id"))
    refuse_unknown("field", document, {"sample_ids", "labels", "batch_id"})
    for name in ("sample_ids", "labels"):
        _listed(document.get(name), name)
    return RawLabels.of(document["sample_ids"], document["labels"], document.get("batch_id"))


def _listed(values: object, name: str) -> list[Any]:
    """The list itself, arrays and tuples made into one."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise InvalidBatch(
            f"`{name}` is a JSON {json_type(values)}; expected a list with one value per sample."
        )
    return list(values)


def _loaded(text: bytes | bytearray | memoryview) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidBatch(
            f"A field of the entry is no JSON: {error}. See docs/redis.md for what it holds."
        ) from None
