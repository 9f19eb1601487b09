"""Where the average needs no hook on parameters; its bits, and when hooks go: distributed/."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import pytest
from torch import nn
from torch.distributed.algorithms.join import Join

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


def test_joins_are_heard_of_once_whoever_else_wraps_torchs_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And again where somebody's patch, which hooktrace had wrapped, is taken back."""
    ddp: Any = mock.Mock(module=nn.Linear(2, 2), process_group=mock.Mock(size=lambda: 2))

    def torchs(joinable: Any) -> None:
        """Tell nobody."""

    def heard() -> Any:
        DDPAverage(ddp)
        return Join.notify_join_context

    monkeypatch.setattr(Join, "notify_join_context", staticmethod(torchs))
    ours = heard()
    assert ours is not torchs
    theirs = functools.wraps(ours)(lambda _: None)
    monkeypatch.setattr(Join, "notify_join_context", staticmethod(theirs))
    assert heard() is theirs
    unmarked = functools.wraps(torchs)(lambda _: None)
    monkeypatch.setattr(Join, "notify_join_context", staticmethod(unmarked))
    assert heard() is not unmarked
