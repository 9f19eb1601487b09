"""A whole opaque hook as one operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.staging.hook_call import HookCall


def opaque(state: Any, bucket: Any) -> Any:
    """Return a future that holds what it was called with."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result((state, bucket))
    return future


def test_it_is_called_when_it_is_issued() -> None:
    """With its state and bucket; nothing is known of what it sends."""
    call = HookCall(opaque, "state", "bucket")
    future = call.start()
    assert call.result(future) == ("state", "bucket")
    assert call.describe() is None
    assert repr(call) == "hook opaque"


def test_what_is_no_future_is_named() -> None:
    """Before anything waits for it."""
    with pytest.raises(TypeError, match="returned None and not a future"):
        HookCall(lambda state, bucket: None, None, None).start()


def test_it_cannot_run_without_futures() -> None:
    """As the compiled reducer would have it."""
    with pytest.raises(TypeError, match="optimize_ddp = True"):
        HookCall(opaque, None, None).functional()
