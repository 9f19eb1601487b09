"""Which hooks of torch's have a remedy, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local

from hooktrace import hooks
from hooktrace.integrations import remedy

FP16, BF16 = default_hooks.fp16_compress_wrapper, default_hooks.bf16_compress_wrapper
FAILING = [
    powerSGD_hook.powerSGD_hook,
    default_hooks.bf16_compress_hook,
    FP16(powerSGD_hook.powerSGD_hook),
    BF16(default_hooks.allreduce_hook),
    BF16(FP16(powerSGD_hook.batched_powerSGD_hook)),
]
GOOD = [
    default_hooks.allreduce_hook,
    FP16(default_hooks.allreduce_hook),
    local.post_localSGD_hook,
    hooks.powerSGD_hook,
    print,
    3,
]


@pytest.fixture
def ddp(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model whose group is gloo's."""
    monkeypatch.setattr(remedy, "group_info", lambda *_: SimpleNamespace(backend="gloo"))
    monkeypatch.setattr(remedy, "_REFUSES_BF16", True)
    return SimpleNamespace(module=torch.nn.Linear(1, 1), process_group=None)


@pytest.mark.parametrize("hook", FAILING)
def test_a_failing_hook_is_replaced_when_it_is_asked_for(
    hook: Any, ddp: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Off, the log says what would help; on, what was done."""
    monkeypatch.delenv("HOOKTRACE_FIX", raising=False)
    assert remedy.remedied(hook, ddp) is hook
    assert "set HOOKTRACE_FIX=1, and hooktrace's runs in its place" in caplog.text
    monkeypatch.setenv("HOOKTRACE_FIX", "1")
    assert type(remedy.remedied(hook, ddp)) is type(hooks.powerSGD_hook)
    assert "runs in place of torch's" in caplog.text


@pytest.mark.parametrize("hook", GOOD)
def test_others_are_left_alone(
    hook: Any, ddp: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In silence."""
    monkeypatch.setenv("HOOKTRACE_FIX", "1")
    assert remedy.remedied(hook, ddp) is hook
    assert caplog.text == ""


def test_on_another_backend_torchs_hooks_work(
    ddp: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So nothing is done, and nothing said."""
    monkeypatch.setenv("HOOKTRACE_FIX", "1")
    monkeypatch.setattr(remedy, "group_info", lambda *_: SimpleNamespace(backend="nccl"))
    assert remedy.remedied(powerSGD_hook.powerSGD_hook, ddp) is powerSGD_hook.powerSGD_hook
    assert caplog.text == ""


@pytest.mark.parametrize("hook", [FAILING[1], FAILING[3]])
def test_a_torch_that_takes_bf16_needs_no_remedy(
    hook: Any, ddp: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One built for a device does, also on gloo."""
    monkeypatch.setattr(remedy, "_REFUSES_BF16", False)
    assert remedy.remedied(hook, ddp) is hook
    assert caplog.text == ""
