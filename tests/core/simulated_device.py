"""A simulated accelerator: tensors on a device of their own, computed by the CPU's kernels.

It shows without a GPU, and without a compiler, where code that is to run on one mixes devices, and
that a stream gives the same numbers there. Importing this module makes the device known to torch
for the rest of the process; nothing else changes.

What CUDA refuses is refused: operands on two devices, indices on a device for a tensor on the CPU,
drawing on the device by a generator of the CPU's, products of integers, and reading the device's
memory in place (`Tensor.numpy`). So are sums that it adds up in any order. What CUDA allows works:
single numbers of the CPU's in pointwise operations, and indices from the CPU.

What it cannot show: errors that CUDA reports late, the device's memory, its rounding, its speed.

It rests on `torch.utils.backend_registration._setup_privateuseone_for_python_backend`, which torch
calls experimental; the project pins torch.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._mode_utils import no_dispatch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "sim"

_setup_privateuseone_for_python_backend(NAME)

DEVICE = torch.device(NAME, 0)

CPU = torch.device("cpu")

_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
_PRODUCTS = {"mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "mv", "addmv", "addmv_", "dot"}
_UNORDERED = {"index_add", "index_add_", "scatter_add", "scatter_add_"}
"""Sums that CUDA adds up in any order, so that floating-point ones end in other bits each time."""

_RESIZING = {"set_", "resize_", "resize_as_"}
"""Operations that give a tensor other memory in place, which a wrapper cannot follow."""


class SimulatedDeviceError(RuntimeError):
    """What CUDA refuses, or what the simulated device cannot do."""


class SimulatedTensor(torch.Tensor):
    """A tensor on the simulated device.

    Arguments:
        held: Its numbers, on the CPU. A view of a tensor holds a view of what that holds.
    """

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> SimulatedTensor:
        made: SimulatedTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=DEVICE,
        )
        made.held = held
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SimulatedTensor({self.held!r})"

    def tolist(self) -> Any:
        """The numbers, copied to the CPU; torch itself would read the memory in place."""
        return self.cpu().tolist()

    __torch_function__: ClassVar[Any] = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls,
        operator: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _call(operator, args, dict(kwargs or {}))


# What has been called ---------------------------------------------------------------------

_counters: list[Counter[str]] = []


@contextmanager
def operators() -> Iterator[Counter[str]]:
    """Count what the device is asked for meanwhile, by the names of torch's operators.

    Copies between the CPU and the device count as "to device" and "to host".
    """
    counter: Counter[str] = Counter()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.remove(counter)


def _count(name: str) -> None:
    for counter in _counters:
        counter[name] += 1


# What it would cost -----------------------------------------------------------------------

_VIEWS = {
    *("view", "_unsafe_view", "reshape", "_reshape_alias", "expand", "t", "transpose", "permute"),
    *("slice", "select", "unsqueeze", "squeeze", "detach", "alias", "as_strided", "split"),
    *("split_with_sizes", "unbind", "diagonal", "chunk", "lift_fresh", "empty", "empty_like"),
    *("empty_strided", "new_empty", "new_empty_strided", "unfold", "movedim", "narrow"),
    *("set_data", "is_pinned", "sym_size", "_local_scalar_dense", "to host", "to device"),
}
"""Operators for which nothing is launched."""

_MANY = {
    "linalg_cholesky_ex": 4,
    "cholesky_inverse": 4,
    "linalg_solve_triangular": 3,
    "_linalg_eigh": 40,
    "linalg_eigh": 40,
    "_linalg_solve_ex": 8,
    "linalg_qr": 12,
    "sort": 4,
    "topk": 3,
    "nonzero": 3,
    "masked_select": 4,
    "bincount": 5,
    "cumsum": 2,
    "unique_consecutive": 6,
    "_unique2": 6,
    "median": 5,
    "multinomial": 8,
    "index_put_": 2,
    "_linalg_check_errors": 2,
    "equal": 3,
    "isin": 2,
}
"""Kernels behind one operator where there are more than one, by torch's sources for CUDA."""

_WAITS = {
    "_local_scalar_dense": 1,
    "to host": 1,
    "to device": 1,
    "nonzero": 1,
    "bincount": 2,
    "masked_select": 1,
    "_unique2": 1,
    "unique_dim": 1,
    "unique_consecutive": 1,
    "equal": 1,
    "_linalg_check_errors": 1,
    "is_nonzero": 1,
}
"""Operators for which the CPU waits until the device has done all it was asked for."""


class Costs:
    """What was launched and waited for.

    Attributes:
        launches: Kernels.
        waits: Function of the project -> waits.
        moved: Bytes copied between the CPU and the device.
    """

    def __init__(self) -> None:
        self.launches, self.moved = 0, 0
        self.waits: Counter[str] = Counter()

    def add(self, name: str, waits: int, moved: int) -> None:
        """Count one operator."""
        self.launches += 0 if name in _VIEWS else _MANY.get(name, 1)
        self.moved += moved
        if waits:
            self.waits[_asking()] += waits


_costs: list[Costs] = []


@contextmanager
def costs() -> Iterator[Costs]:
    """Count what a GPU would be asked for meanwhile."""
    found = Costs()
    _costs.append(found)
    try:
        yield found
    finally:
        _costs.remove(found)


def _asking() -> str:
    """The function of the project that asks, as `folder/file.py: function`."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        path = frame.f_code.co_filename
        if "/core/" in path and "/tests/" not in path:
            return f"{path.rpartition('/core/')[2]}: {frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


def _charge(name: str, args: Sequence[Any] = (), moved: int = 0) -> None:
    if not _costs:
        return
    waits = _WAITS.get(name, 0)
    if name in _INDEXING:
        # A mask has to be counted first; indices from the CPU are a copy that is waited for.
        there = [one for one in args[1] if isinstance(one, Tensor)]
        waits += any(one.dtype in (torch.bool, torch.uint8) for one in there)
        waits += any(not isinstance(one, SimulatedTensor) for one in there)
    for one in _costs:
        one.add(name, waits, moved)


# When it is full --------------------------------------------------------------------------

_full = False


@contextmanager
def full() -> Iterator[None]:
    """Meanwhile the device has no room for anything that comes from the CPU."""
    global _full
    _full = True
    try:
        yield
    finally:
        _full = False


# One operation ----------------------------------------------------------------------------


class _Facts(NamedTuple):
    """What there is to know of an operator, whatever it is called with."""

    name: str
    written: tuple[tuple[int, str], ...]  # place and name of arguments that it writes to
    pointwise: bool
    random: bool
    reshapes: bool  # gives its argument another shape in place


@cache
def _facts(operator: OpOverload) -> _Facts:
    written = (
        (place, argument.name)
        for place, argument in enumerate(operator._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return _Facts(
        operator.overloadpacket.__name__,
        tuple(written),
        torch.Tag.pointwise in operator.tags,
        torch.Tag.nondeterministic_seeded in operator.tags,
        torch.Tag.inplace_view in operator.tags,
    )


def _call(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Check where the operands are, let the CPU compute, and put the result where it belongs."""
    facts = _facts(operator)
    if facts.name == "_to_copy":
        return _copied(operator, args, kwargs)
    if facts.name == "copy_":
        return _overwritten(args[0], args[1])
    operands = _tensors((*args, *kwargs.values()))
    _check(operator, facts, args, kwargs, operands)
    _count(facts.name)
    _charge(facts.name, args)
    wanted = kwargs.get("device")
    here = wanted is None or torch.device(wanted).type == NAME
    plain = {name: _held(value) for name, value in kwargs.items()}
    if wanted is not None:
        plain["device"] = CPU
    result = operator(*map(_held, args), **plain)
    if facts.reshapes:  # the wrapper's own shape follows
        with no_dispatch():
            operator(*args, **kwargs)
    if not here:
        return result
    same = {
        id(_held(one)): one
        for place, name in facts.written
        for one in _tensors((args[place] if place < len(args) else kwargs.get(name),))
    }
    return _placed(result, same)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments and in the lists among them."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _held(value: Any) -> Any:
    """An argument as the CPU takes it."""
    if isinstance(value, SimulatedTensor):
        return value.held
    if isinstance(value, list | tuple):
        return [_held(one) for one in value]
    return value


def _placed(result: Any, same: Mapping[int, Tensor]) -> Any:
    """A result on the device; what was written to comes back as the same object."""
    if isinstance(result, Tensor):
        known = same.get(id(result))
        return SimulatedTensor(result) if known is None else known
    if isinstance(result, list | tuple):
        return type(result)([_placed(one, same) for one in result])
    return result


def _copied(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A copy, from one device to another or of another type on the same one."""
    source = args[0]
    target = torch.device(kwargs.pop("device", None) or source.device)
    kwargs.pop("non_blocking", None)
    held = operator(_held(source), **kwargs)
    if held.untyped_storage().data_ptr() == _held(source).untyped_storage().data_ptr():
        held = held.clone()
    if target.type != NAME:
        _count("to host")
        _charge("to host", moved=held.nbytes)
        return held
    name = "_to_copy" if isinstance(source, SimulatedTensor) else "to device"
    _count(name)
    _charge(name, moved=held.nbytes if name == "to device" else 0)
    return SimulatedTensor(held)


def _overwritten(target: Tensor, source: Tensor) -> Tensor:
    there = isinstance(target, SimulatedTensor)
    across = there != isinstance(source, SimulatedTensor)
    if _full and there and across:
        raise torch.OutOfMemoryError(f"{NAME} out of memory")
    name = ("to device" if there else "to host") if across else "copy_"
    _count(name)
    _charge(name, moved=source.nbytes if across else 0)
    _held(target).copy_(_held(source))
    return target


# What is refused --------------------------------------------------------------------------


def _check(
    operator: OpOverload,
    facts: _Facts,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: Sequence[Tensor],
) -> None:
    """Raise where CUDA would, or where the simulation ends."""
    if facts.name in _RESIZING:
        raise SimulatedDeviceError(f"{operator} is not simulated.")
    if facts.name in _PRODUCTS and not operands[0].is_floating_point():
        raise SimulatedDeviceError(f"{operator} is not implemented for {operands[0].dtype}.")
    if facts.name in _UNORDERED and operands[0].is_floating_point():
        raise SimulatedDeviceError(f"{operator} adds in any order. Use `core.density.grouping`.")
    if facts.random:
        raise SimulatedDeviceError(
            f"{operator}: a generator of the CPU's draws nothing on {NAME}. Draw on the CPU."
        )
    away = [one for one in operands if not isinstance(one, SimulatedTensor)]
    if not away or len(away) == len(operands):
        return
    if facts.name in _INDEXING and isinstance(args[0], SimulatedTensor):
        # Indices may come from the CPU, which costs a copy; so may a single number.
        values = args[2:3] if len(args) > 2 else []
        if all(isinstance(one, SimulatedTensor) or not one.dim() for one in values):
            return
    elif facts.pointwise and not any(one.dim() for one in away):
        return
    where = ", ".join(str(one.device) for one in operands)
    raise SimulatedDeviceError(
        f"Expected all tensors of {operator} to be on the same device, but they are on {where}."
    )


# What makes tensors from nothing, and what torch reaches past the subclass ----------------

_library = torch.library.Library("aten", "IMPL")


def _register(name: str, implementation: Callable[..., Any]) -> None:
    _library.impl(name, implementation, "PrivateUse1")


def _factory(name: str) -> None:
    """Let the CPU make it, with the arguments that do not say where."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def make(*args: Any, **kwargs: Any) -> Tensor:
        if kwargs.get("generator") is not None:
            raise SimulatedDeviceError(f"{operator}: a generator of the CPU's draws nothing here.")
        _count(packet)
        _charge(packet)
        return SimulatedTensor(operator(*args, **{**kwargs, "device": CPU}))

    _register(name, make)


for _name in ("empty.memory_format", "empty_strided", "arange", "arange.start", "eye", "eye.m"):
    _factory(_name)
for _name in ("arange.start_step", "linspace", "randperm", "randperm.generator"):
    _factory(_name)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    return _overwritten(target, source)


def _item(tensor: Tensor) -> Any:
    _count("_local_scalar_dense")
    _charge("_local_scalar_dense")
    return _held(tensor).item()


_register("_copy_from", _copy_from)
_register("_local_scalar_dense", _item)
