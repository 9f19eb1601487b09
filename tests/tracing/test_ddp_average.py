"""Where the average needs no hook on parameters; its bits, and when hooks go: distributed/."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from torch import nn

from hooktrace.tracing.ddp_average import DDPAverage


@pytest.mark.parametrize(("ranks", "views"), [(4, True), (3, False)])
def test_where_both_ways_give_the_same_bits_nothing_is_hooked(ranks: int, views: bool) -> None:
    """On powers of two, and where each gradient is copied."""
    module = nn.Linear(2, 2)
    group = mock.Mock(size=lambda: ranks)
    ddp: Any = mock.Mock(module=module, process_group=group, gradient_as_bucket_view=views)
    DDPAverage(ddp)
    parameters: Any = module.parameters()
    assert [one._post_accumulate_grad_hooks for one in parameters] == [None, None]
