"""The whole state of an engine <-> bytes.

A checkpoint holds everything that `EngineState` holds, the random state, the detector
and the window included, and the settings it was made with. What it is worth: loading
it and feeding the batches that came after gives the same model, bit for bit, as if
nothing had happened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_origin, get_type_hints

import torch
from cattrs import BaseValidationError, Converter
from cattrs.strategies import configure_union_passthrough
from torch import Tensor

from core.batch import Label
from core.config import EngineConfig
from core.density.registry import DENSITIES
from core.density.shifts import NO_SHIFTS, Shifts
from core.drift.compiled import Array
from core.drift.registry import make_detector
from core.drift.sentinel import Sentinel
from core.drift.shadows import Shadow
from core.errors import InvalidCheckpoint, InvalidSettings
from core.learners.registry import make_learner
from core.model import Model
from core.readout import LinearReadout, PosteriorReadout
from core.standardiser import Standardiser
from core.state import EngineState
from core.tensors import pack, unpack

FORMAT = "gmr-checkpoint-1"


def dump(state: EngineState, config: EngineConfig, metadata: Mapping[str, str]) -> bytes:
    """Bytes that hold the state, the settings, and text of the caller's beside them."""
    tensors: dict[str, Tensor] = {}

    def name(tensor: Tensor) -> str:
        key = f"t{len(tensors)}"
        tensors[key] = tensor
        return key

    converter = _converter()
    converter.register_unstructure_hook(Tensor, name)
    converter.register_unstructure_hook_func(_is_array, lambda array: name(torch.from_numpy(array)))
    tree = converter.unstructure(state)
    text = {"state": json.dumps(tree), "config": json.dumps(config.to_dict())}
    return pack(FORMAT, tensors, {**metadata, **text})


def load(
    data: bytes, device: torch.device | str = "cpu"
) -> tuple[EngineState, EngineConfig, dict[str, str]]:
    """The inverse of `dump`.

    Returns:
        The state on `device`, the settings it was made with, and the caller's text.

    Raises:
        InvalidCheckpoint: Truncated, damaged, or of another format or release.
    """
    tensors, text = unpack(FORMAT, data)
    converter, on_cpu = _converter(), _converter()
    converter.register_structure_hook(Tensor, lambda key, _: tensors[key].to(device))
    on_cpu.register_structure_hook(Tensor, lambda key, _: tensors[key])
    on_cpu.register_structure_hook_func(_is_array, lambda key, _: tensors[key].numpy())
    # A detector counts on the CPU, but the models that it watches by live with the others.
    on_cpu.register_structure_hook(Sentinel, lambda tree, _: _sentinel(tree, converter))
    try:
        config = EngineConfig.from_dict(json.loads(text.pop("config")))
        tree: dict[str, Any] = json.loads(text.pop("state"))
        learner, detector = tree.pop("learner"), tree.pop("detector")
        beside = tree.pop("shadows", [])
        state = converter.structure({**tree, "learner": None, "detector": None}, EngineState)
        if learner is not None:
            learner = converter.structure(learner, make_learner(config).state_type)
        detector = _detector(detector, config, config.detector, on_cpu)
        shadows = tuple(
            Shadow(name, _detector(one["state"], config, name, on_cpu))
            for one in beside
            for name in [one["detector"]]
        )
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        BaseValidationError,
        InvalidSettings,
    ) as error:
        raise InvalidCheckpoint(
            f"The checkpoint does not fit this release ({type(error).__name__}: {error}). "
            f"Load it with the release that wrote it, or start afresh."
        ) from error
    # Random states and the detector's counts live on the CPU, whatever the model's device.
    return (
        replace(
            state,
            learner=learner,
            detector=detector,
            shadows=shadows,
            random=state.random.cpu(),
        ),
        config,
        text,
    )


def _detector(tree: Any, config: EngineConfig, name: str, converter: Converter) -> Any:
    """The detector's state; one that another release wrote begins anew, the model stays."""
    detector = make_detector(config, name)
    try:
        return converter.structure(tree, detector.state_type)
    except (AttributeError, KeyError, TypeError, ValueError, BaseValidationError):
        return detector.start()


def _sentinel(tree: dict[str, Any], converter: Converter) -> Sentinel:
    density = tree["density"]
    tensors = {name: converter.structure(key, Tensor) for name, key in density["tensors"].items()}
    read: type[Any] = LinearReadout if "weight" in tree["readout"] else PosteriorReadout
    readout = converter.structure(tree["readout"], read)
    # Earlier releases knew of none.
    shifts = converter.structure(tree["shifts"], Shifts) if "shifts" in tree else NO_SHIFTS
    return Sentinel(
        Model(
            DENSITIES[density["kind"]].of(tensors, density["facts"]),
            readout,
            shifts,
        ),
        converter.structure(tree["standardiser"], Standardiser),
        tree["taken_at"],
    )


def _sentinel_tree(sentinel: Sentinel, converter: Converter) -> dict[str, Any]:
    """A density is what it says of itself, whatever the family."""
    density = sentinel.model.density
    tensors = {name: converter.unstructure(value) for name, value in density.tensors().items()}
    return {
        "density": {"kind": density.kind, "facts": density.facts(), "tensors": tensors},
        "readout": converter.unstructure(sentinel.model.readout),
        "shifts": converter.unstructure(sentinel.model.shifts),
        "standardiser": converter.unstructure(sentinel.standardiser),
        "taken_at": sentinel.taken_at,
    }


def _converter() -> Converter:
    # A part that is not known is a state of another kind, and must not be half understood.
    converter = Converter(forbid_extra_keys=True)
    configure_union_passthrough(Label | None, converter)
    converter.register_unstructure_hook(Sentinel, lambda one: _sentinel_tree(one, converter))
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


def _is_array(kind: Any) -> bool:
    return (get_origin(kind) or kind) is get_origin(Array)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
