"""Where the average needs no hook on parameters; its bits, and when hooks go: distributed/."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from hooktrace.tracing.ddp_average import DDPAverage


class Group:
    """A process group of so many ranks."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def size(self) -> int:
        return self._ranks


class Model:
    """What the average asks of a DDP model."""

    def __init__(self, module: nn.Module, ranks: int, *, views: bool = True) -> None:
        self.module = module
        self.process_group = Group(ranks)
        self.gradient_as_bucket_view = views


def hooks_on(module: nn.Module) -> list[int]:
    """Return how many hooks each parameter has."""
    parameters: Any = module.parameters()
    return [len(parameter._post_accumulate_grad_hooks or ()) for parameter in parameters]


@pytest.mark.parametrize(("ranks", "views"), [(4, True), (3, False)])
def test_where_both_ways_give_the_same_bits_nothing_is_hooked(ranks: int, views: bool) -> None:
    """On powers of two, and where each gradient is copied."""
    module = nn.Linear(2, 2)
    ddp: Any = Model(module, ranks, views=views)
    average = DDPAverage(ddp)
    assert average.process_group is ddp.process_group
    assert hooks_on(module) == [0, 0]
