"""Where sharded models are seen, in one process; on real ranks: distributed/test_run_sharded."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
import torch.distributed.fsdp
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

from hooktrace.integrations import ending, sharded


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test hears everything."""
    monkeypatch.setattr(sharded, "_said", [])
    return


def test_fsdp_is_patched_and_given_back() -> None:
    """Whenever it was imported, since classes are changed and no function is replaced."""
    before = FSDPState._lazy_init, FullyShardedDataParallel.__init__
    end = sharded.watch(torch.distributed.fsdp, sharded.trace_from)
    assert FSDPState._lazy_init is not before[0]
    assert FullyShardedDataParallel.__init__ is not before[1]
    end()
    assert before == (FSDPState._lazy_init, FullyShardedDataParallel.__init__)


def test_a_torch_that_settles_roots_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    """It is said, and left alone."""
    sharded.watch(ModuleType("torch.elsewhere"), sharded.trace_from)()
    (said,) = caplog.messages
    assert said.startswith("this version of torch settles the root of a sharded model")


def test_what_fails_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root that is none, as hooktrace sees it."""
    monkeypatch.setattr(ending, "model_seen", lambda: None)
    for _ in range(2):
        sharded._tell(sharded.trace_from, 3)  # type: ignore[arg-type]
    (said,) = caplog.messages
    assert said.startswith("a sharded model is not traced: ")


def test_a_torch_without_hook_points(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 2.6, which can shard: that is why nothing is traced."""
    monkeypatch.setattr(ending, "model_seen", lambda: None)
    monkeypatch.delattr(FSDPModule, "set_custom_all_gather", raising=False)
    sharded._tell(sharded.trace_from, nn.Linear(1, 1))
    assert caplog.messages == [
        "a sharded model is not traced: this version of torch has no hook points for FSDP2 "
        "(set_custom_all_gather); use torch 2.13, or DDP with hooktrace.instrument; "
        "training goes on"
    ]
