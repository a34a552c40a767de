"""The whole state of an engine <-> bytes.

A checkpoint holds everything that `EngineState` holds, the random state, the detector
and the window included, and the settings it was made with. What it is worth: loading
it and feeding the batches that came after gives the same model, bit for bit, as if
nothing had happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

import torch
from cattrs import BaseValidationError, Converter, transform_error
from cattrs.gen import make_dict_structure_fn, override
from cattrs.strategies import configure_union_passthrough
from torch import Tensor

from core.batch import Batch, Label
from core.compiled.loops import Array
from core.config import EngineConfig
from core.density.deep.shifts import NO_SHIFTS, Shifts
from core.density.owned import Owned
from core.drift.detector import ModelVersion
from core.drift.shadows import Shadow
from core.engine.detectors import make_detector
from core.engine.learners import make_learner
from core.engine.state import EngineState
from core.errors import InvalidSettings, OtherRelease
from core.experts.panel import Panel
from core.memory.class_shares import ClassShares
from core.memory.course import Course
from core.memory.fingerprints import Fingerprints
from core.memory.reliability import Reliability
from core.model.families import density_of
from core.model.model import Model
from core.model.readout import readout_type
from core.outliers.calibration import Calibration
from core.standardiser import Standardiser
from core.tensors import Verifier, pack, unpack

FORMAT = "gmr-checkpoint-1"

T = TypeVar("T")


def dump(state: EngineState, config: EngineConfig, metadata: Mapping[str, str]) -> bytes:
    """Bytes that hold the state, the settings, and text of the caller's beside them."""
    with _writers.one() as writer:
        tree, tensors = writer.taken_apart(state)
    text = {"state": json.dumps(tree), "config": json.dumps(config.to_dict())}
    return pack(FORMAT, tensors, {**metadata, **text})


def copied(value: Any, kind: type[Any]) -> Any:
    """A value on the CPU as a checkpoint would give it back: a learner's state, for one."""
    with _writers.one() as writer:
        tree, tensors = writer.taken_apart(value)
    converter = _converter()
    converter.register_structure_hook(Tensor, lambda key, _: tensors[key].clone())
    return converter.structure(json.loads(json.dumps(tree)), kind)


class _Writing:
    """Takes values apart, one at a time. A converter writes code for each type that it meets, which
    takes longer than to convert, so converters are pooled: see `_Pool`."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._converter = _converter()
        self._converter.register_unstructure_hook(Tensor, self._named)
        self._converter.register_unstructure_hook_func(
            _is_array, lambda array: self._named(torch.from_numpy(array))
        )

    def taken_apart(self, value: Any) -> tuple[Any, dict[str, Tensor]]:
        """Plain values, and tensors by the names that these have there."""
        try:
            return self._converter.unstructure(value), self._tensors
        finally:
            self._tensors = {}

    def _named(self, tensor: Tensor) -> str:
        key = f"t{len(self._tensors)}"
        self._tensors[key] = tensor
        return key


class _Reading:
    """Puts values together again, one at a time; pooled as `_Writing` is.

    Attributes:
        model: For what lives with the model.
        on_cpu: For what lives on the CPU, whatever the model's device.
    """

    def __init__(self) -> None:
        self._there: Mapping[str, Tensor] = {}
        self._here: Mapping[str, Tensor] = {}
        self.model, self.on_cpu = model, on_cpu = _converter(), _converter()
        model.register_structure_hook(Tensor, lambda key, _: self._there[key])
        on_cpu.register_structure_hook(Tensor, lambda key, _: self._here[key])
        on_cpu.register_structure_hook_func(_is_array, lambda key, _: self._here[key].numpy())
        # A detector counts on the CPU, but the models that it watches by live with the others.
        on_cpu.register_structure_hook_func(
            _is_version, lambda tree, kind: _version(tree, kind, model)
        )
        # What p-values and the estimated accuracy rest on, the course of a sub-task, fingerprints
        # of its samples, sums of classes, experts and codes of labels stay there, too.
        for kind in (Calibration, ClassShares, Course, Fingerprints, Reliability):
            model.register_structure_hook(kind, on_cpu.structure)
        model.register_structure_hook(Panel, lambda tree, _: _panel(tree, on_cpu))
        model.register_structure_hook(Batch, _batches(model, on_cpu))
        model.register_structure_hook_func(_is_owned, lambda tree, kind: _owned(tree, kind, model))

    @contextmanager
    def of(self, there: Mapping[str, Tensor], here: Mapping[str, Tensor]) -> Iterator[None]:
        """Reads these tensors, on the model's device and on the CPU, by their names."""
        self._there, self._here = there, here
        try:
            yield
        finally:
            self._there, self._here = {}, {}


def verifier() -> Verifier:
    """Checks the bytes of a checkpoint while they come."""
    return Verifier(FORMAT)


def features_of(verifier: Verifier) -> int | None:
    """D of the checkpoint whose bytes a verifier has let pass; None where it does not tell.

    Nothing is told of a model that has learned nothing, or of a file that `load` will refuse.
    """
    try:
        standardiser = _parted(json.loads(verifier.text["state"]))["model"]["standardiser"]
        return None if standardiser is None else int(verifier.shapes[standardiser["shift"]][0])
    except (KeyError, TypeError, ValueError, IndexError, RecursionError):
        return None


def load(
    data: bytes, device: torch.device | str = "cpu"
) -> tuple[EngineState, EngineConfig, dict[str, str]]:
    """The inverse of `dump`.

    Returns:
        The state on `device`, the settings it was made with, and the caller's text.

    Raises:
        OtherRelease: Whole, and another release wrote it.
        InvalidCheckpoint: Truncated, damaged, or of another format.
        torch.OutOfMemoryError: The device has no room for it.
    """
    tensors, text = unpack(FORMAT, data)
    # All at once, and not while structuring: a full device is no fault of the checkpoint's.
    there = {name: tensor.to(device) for name, tensor in tensors.items()}
    try:
        with _readers.one() as reader, reader.of(there, tensors):
            config, state, watching, apart = _put_together(text, reader)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        BaseValidationError,
        InvalidSettings,
    ) as error:
        raise OtherRelease(
            f"The checkpoint does not fit this release ({_reasons(error)}). "
            f"Load it with the release that wrote it, or start afresh."
        ) from error
    # Random states, the detector's counts and the gains of samples live on the CPU, whatever the
    # model's device.
    proposals = state.pending.proposals
    recent = replace(proposals.recent, gains=proposals.recent.gains.cpu())
    state = (
        state.with_model(random=state.model.random.cpu())
        .with_watch(**watching)
        .with_pending(proposals=replace(proposals, recent=recent))
    )
    if state.rest.outlook is not None and apart is not None:
        watch = replace(state.rest.outlook.watch, **apart)
        state = replace(
            state, rest=replace(state.rest, outlook=replace(state.rest.outlook, watch=watch))
        )
    return state, config, text


def _reasons(error: Exception) -> str:
    """Why a tree is no state, in a line."""
    if not isinstance(error, BaseValidationError):
        return f"{type(error).__name__}: {error}"
    reasons = transform_error(error, "state")
    more = f", and {len(reasons) - 3} more" * (len(reasons) > 3)
    return "; ".join(reasons[:3]) + more


def _put_together(
    text: dict[str, str], reader: _Reading
) -> tuple[EngineConfig, EngineState, dict[str, Any], dict[str, Any] | None]:
    """What is in a checkpoint's own text, which is taken out of it.

    Returns:
        The settings, the state, and the detectors of its watch and of the watch of its outlook, as
        fields; None without an outlook.
    """
    config = EngineConfig.from_dict(json.loads(text.pop("config")))
    tree = _parted(json.loads(text.pop("state"), object_hook=_as_today))
    learner = tree["model"].pop("learner")
    watching = _detectors(tree["watch"], config, reader.on_cpu)
    outlook = tree.get("rest", {}).get("outlook")
    apart = None
    if outlook is not None:
        apart = _detectors(outlook["watch"], config, reader.on_cpu)
    state = reader.model.structure(tree, EngineState)
    if learner is not None:
        learner = reader.model.structure(learner, make_learner(config).state_type)
    return config, state.with_model(learner=learner), watching, apart


EARLIER = {
    "stream": {
        "batches": "stream_batches",
        "samples": "stream_samples",
        "starts": "recent_starts",
        "prequential": "prequential",
    },
    "sub_task": {
        "number": "sub_task",
        "first_batch": "boundary_batch",
        "first_sample": "boundary_sample",
        "recurrence": "recurrence",
        "resumed": "resumed",
        "log_likelihood": "log_likelihood",
        "marginals": "marginals",
        "course": "course",
    },
    "past": {
        "boundaries": "boundaries",
        "log_likelihood": "past_likelihood",
        "retention": "held",
    },
    "watch": {name: name for name in ("detector", "shadows", "armed", "ert", "burst")},
    "pending": {name: name for name in ("set_aside", "awaiting", "proposals", "quarantined")},
}
"""The parts of a state, and what their fields were called when a state had no parts. Whatever is
not named here is the model's."""


def _parted(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree of a state by its parts; that of an earlier release had none."""
    if "model" in tree:
        return tree
    parts = {
        part: {now: tree.pop(was) for now, was in names.items() if was in tree}
        for part, names in EARLIER.items()
    }
    # An earlier release had other conformity scores of tables, which say nothing beside those of
    # today.
    if "scales" in tree and tree.pop("scales") is not None:
        del tree["calibration"]
    return {**parts, "model": tree}


RENAMED = (
    {"stride": "thinning", "pace": "autocorrelation_time", "drift": "log_bias"},  # `Dependence`
    {"earlier": "scores", "counts": "counts"},  # `Reference`
    {"ranking": "ranking", "waiting": "unsorted", "n_waiting": "n_unsorted"},  # `ReferenceScores`
    {"right": "right", "likelihoods": "log_likelihoods"},  # `Marks`
)
"""What earlier releases called fields, beside fields by which the tree
of one is told from others."""


def _as_today(tree: dict[str, Any]) -> dict[str, Any]:
    """A part of a tree by today's names; an earlier release may have written it."""
    names = {"analysers": "components", "conditions": "dependence", "withheld": "suspected"}
    if isinstance(tree.get("likelihood"), dict):  # moments, and no signal of that name
        names["likelihood"] = "log_likelihood"
    for earlier in RENAMED:
        if earlier.keys() <= tree.keys():
            names |= earlier
    return {names.get(name, name): part for name, part in tree.items()}


def _panel(tree: dict[str, Any], converter: Converter) -> Panel:
    # An earlier release counted the classes that the model had yet to learn.
    known = {name: part for name, part in tree.items() if name != "ahead"}
    return converter.structure(known, Panel).of_today()


def _owned(tree: dict[str, Any], kind: type[Owned], converter: Converter) -> Owned:
    # An earlier release had nothing to compare votes with.
    names = (field.name for field in fields(kind))
    parts = {name: converter.structure(tree[name], Tensor) for name in names if name in tree}
    if unknown := tree.keys() - parts.keys():
        raise ValueError(f"components have no {', '.join(sorted(unknown))}")
    none = torch.zeros_like(torch.nn.functional.pad(parts["votes"], (1, 0)))
    parts.setdefault("vote_baseline", none)
    return kind(**parts)


def _detectors(watch: dict[str, Any], config: EngineConfig, converter: Converter) -> dict[str, Any]:
    """What the tree of a watch says of detectors, as fields of it; taken out of the tree."""
    detector, beside = watch["detector"], watch.pop("shadows", [])
    watch["detector"] = None
    shadows = tuple(
        Shadow(name, _detector(one["state"], config, name, converter))
        for one in beside
        for name in [one["detector"]]
    )
    detector = _detector(detector, config, config.detector, converter)
    return {"detector": detector, "shadows": shadows}


def _detector(tree: Any, config: EngineConfig, name: str, converter: Converter) -> Any:
    """The detector's state; one that another release wrote begins anew, the model stays."""
    detector = make_detector(config, name)
    try:
        return converter.structure(tree, detector.state_type)
    except (AttributeError, KeyError, TypeError, ValueError, BaseValidationError):
        return detector.start()


def _is_version(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ModelVersion)


def _version(tree: dict[str, Any], kind: type[ModelVersion], converter: Converter) -> ModelVersion:
    density = tree["density"]
    tensors = {name: converter.structure(key, Tensor) for name, key in density["tensors"].items()}
    readout = converter.structure(tree["readout"], readout_type(tree["readout"]))
    # Earlier releases knew of none.
    shifts = converter.structure(tree["shifts"], Shifts) if "shifts" in tree else NO_SHIFTS
    return kind(
        Model(
            density_of(density["kind"], tensors, density["facts"]),
            readout,
            shifts,
        ),
        converter.structure(tree["standardiser"], Standardiser),
        tree["taken_at"],
    )


def _version_tree(version: ModelVersion, converter: Converter) -> dict[str, Any]:
    """A density is what it says of itself, whatever the family."""
    density = version.model.density
    tensors = {name: converter.unstructure(value) for name, value in density.tensors().items()}
    return {
        "density": {"kind": density.kind, "facts": density.facts(), "tensors": tensors},
        "readout": converter.unstructure(version.model.readout),
        "shifts": converter.unstructure(version.model.shifts),
        "standardiser": converter.unstructure(version.standardiser),
        "taken_at": version.taken_at,
    }


def _converter() -> Converter:
    # A part that is not known is a state of another kind, and must not be half understood.
    converter = Converter(forbid_extra_keys=True)
    configure_union_passthrough(Label | None, converter)
    converter.register_unstructure_hook_func(_is_version, lambda one: _version_tree(one, converter))
    # Left alone, a named tuple is passed through as it is when its fields are tensors.
    converter.register_unstructure_hook_func(
        _is_named_tuple, lambda values: [converter.unstructure(value) for value in values]
    )
    converter.register_structure_hook_func(
        _is_named_tuple,
        lambda values, kind: kind(
            *(
                converter.structure(value, field)
                for value, field in zip(values, get_type_hints(kind).values(), strict=True)
            )
        ),
    )
    return converter


def _batches(converter: Converter, on_cpu: Converter) -> Callable[[Any, Any], Batch]:
    """How batches are read: features for the model, codes and places as they came."""

    def here(key: Any, kind: Any) -> Any:
        return on_cpu.structure(key, kind)

    return make_dict_structure_fn(
        Batch,
        converter,
        _cattrs_forbid_extra_keys=True,
        codes=override(struct_hook=here),
        places=override(struct_hook=here),
    )


def _is_owned(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Owned)


def _is_array(kind: Any) -> bool:
    return (get_origin(kind) or kind) is get_origin(Array)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


class _Pool(Generic[T]):
    """As many of a kind as threads have needed at one time, each for one thread at a time."""

    def __init__(self, kind: Callable[[], T]) -> None:
        self._kind = kind
        self._free: list[T] = []

    @contextmanager
    def one(self) -> Iterator[T]:
        """One that no other thread has meanwhile."""
        try:
            taken = self._free.pop()
        except IndexError:
            taken = self._kind()
        try:
            yield taken
        finally:
            self._free.append(taken)


_writers = _Pool(_Writing)
_readers = _Pool(_Reading)
