"""Which hooks of torch's fail on gloo, and how."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local

from hooktrace import hooks
from hooktrace.integrations import failing_hooks

FP16, BF16 = default_hooks.fp16_compress_wrapper, default_hooks.bf16_compress_wrapper
FAILING = [
    (powerSGD_hook.powerSGD_hook, "powerSGD_hook of torch hangs with two or more buckets"),
    (default_hooks.bf16_compress_hook, "bf16_compress_hook of torch is refused"),
    (FP16(powerSGD_hook.powerSGD_hook), "powerSGD_hook of torch hangs with two or more buckets"),
    (BF16(default_hooks.allreduce_hook), "bf16_compress_wrapper of torch is refused"),
    (
        FP16(FP16(powerSGD_hook.batched_powerSGD_hook)),
        "batched_powerSGD_hook of torch raises once it compresses",
    ),
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
    monkeypatch.setattr(failing_hooks, "group_info", lambda *_: SimpleNamespace(backend="gloo"))
    monkeypatch.setattr(failing_hooks, "_REFUSES_BF16", True)
    return SimpleNamespace(module=torch.nn.Linear(1, 1), process_group=None)


@pytest.mark.parametrize(("hook", "how"), FAILING)
def test_a_failing_hook_is_named_with_how_it_fails(hook: Any, how: str, ddp: Any) -> None:
    """Also inside torch's wrappers, of which bfloat16's is refused itself."""
    assert failing_hooks.failure(hook, ddp) == how


@pytest.mark.parametrize(
    ("backend", "refuses_bf16", "hooks"),
    [
        ("gloo", True, GOOD),
        ("gloo", False, [FAILING[1][0], FAILING[3][0]]),  # a torch that was built for a device
        ("nccl", True, [powerSGD_hook.powerSGD_hook]),
    ],
)
def test_nothing_is_said_of_others(
    backend: str, refuses_bf16: bool, hooks: list[Any], ddp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing_hooks, "group_info", lambda *_: SimpleNamespace(backend=backend))
    monkeypatch.setattr(failing_hooks, "_REFUSES_BF16", refuses_bf16)
    assert [failing_hooks.failure(hook, ddp) for hook in hooks] == [None] * len(hooks)
