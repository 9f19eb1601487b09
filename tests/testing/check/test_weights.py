"""Elements that are sums of some ranks' gradients are known as such, and nothing else is."""

from __future__ import annotations

import pytest
import torch

from hooktrace.testing.check.weights import sum_of_some


def drawn(ranks: int, numel: int = 2000) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return gradients, weights of ranks, and of which ranks each element is."""
    seed = torch.Generator().manual_seed(ranks)
    own = torch.randn(ranks, numel, generator=seed, dtype=torch.float64)
    weights = torch.linspace(0.9, 1.1, ranks, dtype=torch.float64)
    chosen = (torch.rand(ranks, numel, generator=seed) < 0.2).double()
    return own, weights, chosen


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_weights_and_ranks_are_found(ranks: int) -> None:
    """Also in 16 bits."""
    own, weights, chosen = drawn(ranks)
    result = (weights @ (own * chosen)).half().double()
    found = sum_of_some(own, result)
    assert found is not None
    torch.testing.assert_close(found.weights, weights, rtol=1e-3, atol=0)
    came = chosen[:, result != 0]
    assert (found.chosen == came).double().mean() > 0.999


def test_what_is_of_all_ranks_needs_no_choice() -> None:
    """Of any number of ranks."""
    own, weights, _ = drawn(12)
    found = sum_of_some(own, weights @ own)
    assert found is not None
    assert found.chosen.all()
    torch.testing.assert_close(found.weights, weights)


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_no_sum_is_not_explained(ranks: int) -> None:
    """Although many choices come near: noise of 3 %, a projection, zeros."""
    own, weights, chosen = drawn(ranks)
    sums = weights @ (own * chosen)
    noise = 1 + 0.03 * torch.randn(2000, generator=torch.Generator().manual_seed(9))
    assert sum_of_some(own, sums * noise) is None
    assert sum_of_some(own, (weights @ own).sign()) is None
    assert sum_of_some(own, torch.zeros(2000, dtype=torch.float64)) is None
