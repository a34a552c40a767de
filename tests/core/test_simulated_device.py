"""Tests for the simulated device: it computes what the CPU does and refuses what CUDA does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.core.simulated_device import DEVICE, SimulatedDeviceError, SimulatedTensor, operators


def numbers(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)) + 0.1


def test_a_tensor_says_where_it_is_and_comes_back_whole() -> None:
    x = numbers(3, 2)
    there = x.to("sim")
    assert there.device == DEVICE
    assert not there.is_cpu
    assert torch.equal(there.cpu(), x)
    assert there.tolist() == x.tolist()
    assert float(there[1, 1]) == float(x[1, 1])
    assert there.half().float().device == DEVICE
    x[0, 0] = 9.0
    assert float(there[0, 0]) != 9.0


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: (x @ x.T).exp().sum(0),
        lambda x: x[0] @ x.T,
        lambda x: x.argsort(dim=0, stable=True),
        lambda x: x[x > 0.5],
        lambda x: x[torch.tensor([2, 0])],  # indices may come from the CPU
        lambda x: x * torch.tensor(2.0),  # and so may a single number
        lambda x: torch.linalg.eigh(x.T @ x).eigenvalues,
        lambda x: torch.cat([x.double(), torch.zeros(1, 3, dtype=torch.float64, device=x.device)]),
        lambda x: torch.nn.functional.one_hot(x.argmax(1), 3),
        lambda x: torch.arange(4, device=x.device) + torch.eye(4, device=x.device)[2],
        lambda x: x.unique(return_counts=True)[1],
        lambda x: torch.stack([part.mean() for part in x.split(2)]),
    ],
)
def test_the_numbers_are_those_of_the_cpu(compute: Callable[[Tensor], Tensor]) -> None:
    x = numbers(5, 3)
    result = compute(x.to(DEVICE))
    assert isinstance(result, SimulatedTensor)
    assert torch.equal(result.cpu(), compute(x))


def test_what_is_written_through_a_view_is_written() -> None:
    x, there = numbers(4, 3), numbers(4, 3).to(DEVICE)
    for one in (x, there):
        rows = one[1:3]
        rows += 1
        one[0] = rows[1]
        one[torch.tensor([3])] = 0.0
        assert rows.squeeze_().shape == (2, 3)
        assert one.t().unsqueeze_(0).shape == (1, 3, 4)
    assert torch.equal(there.cpu(), x)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, there: there + x,
        lambda x, there: x + there,
        lambda x, there: there @ x.T,
        lambda x, there: torch.cat([there, x]),
        lambda x, there: torch.stack([x, there]),
        lambda x, there: torch.where(there > 0.5, x, there),
        lambda x, there: x[there[:, 0].argsort()],
        lambda x, there: x[there[:, 0] > 0.5],
        lambda x, there: there.index_select(0, torch.tensor([0])),
        lambda x, there: there.gather(1, torch.zeros(5, 1, dtype=torch.int64)),
        lambda x, there: there.index_put_((torch.tensor([0]),), x[:1]),
        lambda x, there: torch.equal(x, there),
    ],
)
def test_operands_on_two_devices_are_refused(mix: Callable[[Tensor, Tensor], Tensor]) -> None:
    x = numbers(5, 3)
    with pytest.raises(SimulatedDeviceError, match="same device, but they are on"):
        mix(x, x.to(DEVICE))


def test_memory_of_the_device_is_not_read_in_place() -> None:
    with pytest.raises(RuntimeError, match="not supported for tensor subclasses"):
        numbers(2).to(DEVICE).numpy()


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: torch.rand(3, generator=generator, device=DEVICE),
        lambda generator: torch.randperm(3, generator=generator, device=DEVICE),
        lambda generator: torch.multinomial(numbers(3).to(DEVICE), 1, generator=generator),
        lambda generator: numbers(3).to(DEVICE).bernoulli(generator=generator),
    ],
)
def test_a_generator_of_the_cpu_draws_nothing_there(
    draw: Callable[[torch.Generator], Tensor],
) -> None:
    with pytest.raises(RuntimeError, match="generator"):
        draw(torch.Generator())


def test_integers_are_not_multiplied_as_matrices() -> None:
    x = torch.ones(2, 2, dtype=torch.int64).to(DEVICE)
    with pytest.raises(SimulatedDeviceError, match=r"not implemented for torch\.int64"):
        x @ x


def test_sums_in_any_order_are_refused() -> None:
    which = torch.tensor([0, 0]).to(DEVICE)
    with pytest.raises(SimulatedDeviceError, match="in any order"):
        torch.zeros(1).to(DEVICE).index_add(0, which, torch.ones(2).to(DEVICE))


def test_what_it_is_asked_for_is_counted_copies_by_their_way() -> None:
    x = numbers(3)
    with operators() as counted:
        there = x.to(DEVICE)
        (there * 2 + there).sum().item()
        there.cpu()
    assert dict(counted) == {
        "empty_strided": 1,
        "to device": 1,
        "mul": 1,
        "add": 1,
        "sum": 1,
        "_local_scalar_dense": 1,
        "to host": 1,
    }
    there + 1
    assert counted["add"] == 1
