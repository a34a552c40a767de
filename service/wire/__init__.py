"""Arrays <-> bytes: HTTP bodies and entries of the input stream.

Rules of this package:

1. numpy, orjson and `core.errors` only, no torch: the clients import it too.
2. Every byte may come from a stranger. Whatever is wrong with it, the answer is
   an `InvalidBatch` that names the first offending position; nothing else is
   raised, nothing larger than the input is allocated before it was checked.
3. Arrays travel as they were sent (uint8 stays a quarter of float32) and are
   views of the bytes received where that is possible.
4. Numbers are little-endian.

Throughout: N samples, D features. Features are float32, float16, or uint8 where
a byte k means k/255. Labels are integers or strings; inside a batch they are
codes into its `vocabulary`, with -1 for a sample without a label.

`json_body` and `safetensors_body` describe the two bodies that carry a batch over
HTTP, `fields` the fields of an entry. Others import from here, not from the modules.
"""

from service.wire.arrays import Array
from service.wire.batch import RawBatch, samples_of
from service.wire.batch_id import MAX_ID_LENGTH, new_batch_id
from service.wire.control import Control, Upload
from service.wire.entry import MOST_NOTE, read_entry
from service.wire.feature_names import fault_of_names
from service.wire.features import FEATURE_TYPES
from service.wire.fields import (
    CONTROL_KINDS,
    MOST_BY,
    REQUEUED_FROM,
    VERSION,
    Fields,
    Kind,
    identity,
)
from service.wire.json_body import parse_json
from service.wire.labels import MAX_LABEL_BYTES, UNLABELLED, Label, check_label
from service.wire.later_labels import RawLabels, RawName, parse_labels
from service.wire.limits import NO_LIMITS, Limits
from service.wire.packing import MAX_HEADER_BYTES, MEDIA_TYPE, TENSOR_TYPES, pack, unpack
from service.wire.safetensors_body import parse_safetensors
from service.wire.sample_ids import MAX_SAMPLE_ID_LENGTH, SampleId
from service.wire.unknown import refuse_unknown

__all__ = [
    "CONTROL_KINDS",
    "FEATURE_TYPES",
    "MAX_HEADER_BYTES",
    "MAX_ID_LENGTH",
    "MAX_LABEL_BYTES",
    "MAX_SAMPLE_ID_LENGTH",
    "MEDIA_TYPE",
    "MOST_BY",
    "MOST_NOTE",
    "NO_LIMITS",
    "REQUEUED_FROM",
    "TENSOR_TYPES",
    "UNLABELLED",
    "VERSION",
    "Array",
    "Control",
    "Fields",
    "Kind",
    "Label",
    "Limits",
    "RawBatch",
    "RawLabels",
    "RawName",
    "SampleId",
    "Upload",
    "check_label",
    "fault_of_names",
    "identity",
    "new_batch_id",
    "pack",
    "parse_json",
    "parse_labels",
    "parse_safetensors",
    "read_entry",
    "refuse_unknown",
    "samples_of",
    "unpack",
]
