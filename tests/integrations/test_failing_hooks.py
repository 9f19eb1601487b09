"""Which hooks of torch's fail on gloo, and how."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from hooktrace import hooks
from hooktrace.integrations import failing_hooks

FP16, BF16 = default_hooks.fp16_compress_wrapper, default_hooks.bf16_compress_wrapper
POWERSGD = powerSGD_hook.powerSGD_hook
HANGS = "powerSGD_hook of torch hangs with two or more buckets"
RAISES = "batched_powerSGD_hook of torch raises once it compresses"
BF16_HOOKS = (default_hooks.bf16_compress_hook, BF16(default_hooks.allreduce_hook))
REFUSED = [f"bf16_compress_{what} of torch is refused" for what in ("hook", "wrapper")]


@pytest.mark.parametrize(
    ("hook", "how"),
    [
        *((POWERSGD, HANGS), (FP16(POWERSGD), HANGS)),
        (FP16(FP16(powerSGD_hook.batched_powerSGD_hook)), RAISES),
        *zip(BF16_HOOKS, REFUSED, strict=True),
        *((hook, None) for hook in (FP16(default_hooks.allreduce_hook), hooks.powerSGD_hook, 3)),
    ],
)
def test_a_failing_hook_is_named_with_how_it_fails(
    hook: Any, how: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also inside torch's wrappers; on gloo alone; bfloat16's by the build of torch."""
    ddp: Any = SimpleNamespace(module=torch.nn.Linear(1, 1), process_group=None)
    for backend, refuses, expected in (
        ("gloo", True, how), ("nccl", True, None), ("gloo", False, None if how in REFUSED else how)
    ):  # fmt: skip
        info = SimpleNamespace(backend=backend)
        monkeypatch.setattr(failing_hooks, "group_info", lambda *_, info=info: info)
        monkeypatch.setattr(failing_hooks, "_REFUSES_BF16", refuses)
        assert failing_hooks.failure(hook, ddp) == expected
