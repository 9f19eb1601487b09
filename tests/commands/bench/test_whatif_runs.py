"""The models of the predicted runs: what their gradients are."""

from __future__ import annotations

import pytest
import torch

from hooktrace.commands.bench.whatif_runs import STACKS, Stack


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)
def test_gradients_are_numbers_that_fp16_holds(stack: Stack) -> None:
    """Or neither a hook's error nor its result would be known."""
    model = stack.build()
    model(torch.randn(16, stack.width)).square().mean().backward()
    largest = [float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None]
    assert len(largest) == 2 * stack.layers
    assert 1e-5 < max(largest) < 1e3
