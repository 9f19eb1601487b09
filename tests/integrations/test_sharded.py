"""Where sharded models are seen, in one process; on real ranks: distributed/test_run_sharded."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch.distributed.fsdp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

from hooktrace.integrations import ending, sharded


def test_fsdp_is_patched_and_given_back() -> None:
    """Whenever it was imported, since classes are changed and no function is replaced."""
    before = FSDPState._lazy_init, FullyShardedDataParallel.__init__
    end = sharded.watch(torch.distributed.fsdp, sharded.trace_from)
    assert FSDPState._lazy_init is not before[0]
    assert FullyShardedDataParallel.__init__ is not before[1]
    end()
    assert before == (FSDPState._lazy_init, FullyShardedDataParallel.__init__)


def test_a_torch_that_is_another_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, once, and left alone: one that settles roots elsewhere, or keeps groups so."""

    def refuses(model: nn.Module) -> None:
        raise RuntimeError("torch keeps them elsewhere")

    monkeypatch.setattr(sharded, "_said", [])
    monkeypatch.setattr(ending, "model_seen", lambda: None)
    sharded.watch(ModuleType("torch.elsewhere"), sharded.trace_from)()
    for _ in range(2):
        sharded._tell(refuses, nn.Linear(1, 1))
    elsewhere, refused = caplog.messages
    assert elsewhere.startswith("this version of torch settles the root of a sharded model")
    assert refused.startswith("a sharded model is not traced: torch keeps them elsewhere; training")
