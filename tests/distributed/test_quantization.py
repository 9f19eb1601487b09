"""Quantising and gathering hooks against their formulas, and these against torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks

from tests.distributed import (
    exact_scenarios,
    oracles,
)
from tests.distributed.comparison import unequal
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_gathering_hooks_give_their_formulas_bits(world: Ranks) -> None:
    """Quantised in one and in many channels, gathered, and not communicated at all."""
    ranks = world.run(exact_scenarios.gathering_agrees)
    assert {len(facts) for facts in ranks} == {15}
    assert unequal(ranks) == []


def test_quantisation_gives_its_formulas_bits_in_every_mode(two: Ranks) -> None:
    """DDP's modes, mixed dtypes, accumulated gradients and uneven inputs."""
    ranks = two.run(exact_scenarios.gathering_modes)
    assert {len(facts) for facts in ranks} == {18}
    assert unequal(ranks) == []


def test_gathering_in_a_group_of_one(two: Ranks) -> None:
    """One rank's mean is its own gradient, quantised and back."""
    assert unequal(two.run(exact_scenarios.gathering_alone)) == []


def test_no_channel_more_than_there_must_be(two: Ranks) -> None:
    """A byte an element, and 5 for each channel of 128; torch adds a channel of padding."""
    for sizes in two.run(exact_scenarios.quantised_bytes):
        assert [numel for numel, _ in sizes] == sorted(
            math.prod(shape) for shape in exact_scenarios.LENGTHS
        )
        for numel, sent in sizes:
            assert sent == numel + 5 * math.ceil(numel / 128)


@pytest.mark.parametrize("length", [1, 50, 512, 1000, 1024])
@pytest.mark.parametrize("shift", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("chunk", [None, 128, 512])
def test_the_oracle_quantises_as_torch_does(length: int, shift: float, chunk: int | None) -> None:
    """The formulas in ``oracles.py`` give the bits of torch's observers and functions."""
    values = torch.randn(length, generator=torch.Generator().manual_seed(length)) + shift
    if chunk is None:
        scale, zero = _parameters(MinMaxObserver(), values)
        steps = quantization_hooks._quantize_per_tensor_backend(values, scale, zero)
        expected = quantization_hooks._dequantize_per_tensor_backend(steps, scale, zero)
    else:
        rows = torch.nn.functional.pad(values, (0, -length % chunk)).view(-1, chunk)
        scale, zero = _parameters(PerChannelMinMaxObserver(), rows)
        steps = quantization_hooks._quantize_per_channel_backend(rows, scale, zero)
        expected = quantization_hooks._dequantize_per_channel_backend(steps, scale, zero)
    assert torch.equal(oracles.quantised_mean([values], chunk), expected.flatten()[:length])


def _parameters(observer: Any, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    observer(values)
    found: tuple[torch.Tensor, torch.Tensor] = observer.calculate_qparams()
    return found
