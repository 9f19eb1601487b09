"""Where sharded models are seen, in one process; on real ranks: distributed/test_run_sharded."""

from __future__ import annotations

from types import ModuleType

import pytest
from torch import nn

from hooktrace.integrations import ending, patches, sharded


def test_a_torch_that_is_another_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, once, and left alone: one that settles roots elsewhere, or keeps groups so."""

    def refuses(model: nn.Module) -> None:
        raise RuntimeError("torch keeps them elsewhere")

    patches.warn_once.cache_clear()
    monkeypatch.setattr(ending, "model_seen", lambda: None)
    sharded.watch(ModuleType("torch.elsewhere"), sharded.trace_from)
    for _ in range(2):
        sharded._tell(refuses, nn.Linear(1, 1))
    elsewhere, refused = caplog.messages
    assert elsewhere.startswith("this version of torch settles the root of a sharded model")
    assert refused.startswith("a sharded model is not traced: torch keeps them elsewhere; training")
