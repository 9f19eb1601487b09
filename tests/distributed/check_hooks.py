"""Hooks that are right, and hooks that are wrong in one way each, for ``test_check.py``."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

# DDP refuses annotations that are strings, as all of this file's are: so the hooks have none.


def averages(state, bucket):  # type: ignore[no-untyped-def]
    return default_hooks.allreduce_hook(state, bucket)


def aborts(state, bucket):  # type: ignore[no-untyped-def]
    """Die on rank 1."""
    if _is_due("aborts"):
        os.abort()
    return averages(state, bucket)


def annotated(state: Any, bucket: dist.GradBucket) -> Any:
    """Be right, in a form that DDP takes only when it is traced."""
    return default_hooks.allreduce_hook(state, bucket)


made_in_place = lambda state, bucket: averages(state, bucket)  # noqa: E731, PLW0108  # does not

not_callable = 3

_calls: Counter[str] = Counter()


def _is_due(name: str, call: int = 20) -> bool:
    """Return whether this is rank 1's ``call``-th call of a hook."""
    _calls[name] += 1
    return dist.get_rank() == 1 and _calls[name] == call


def stands_still(state, bucket):  # type: ignore[no-untyped-def]
    """Hang on rank 1."""
    while _is_due("stands_still") or _calls["stands_still"] == 0:
        _calls["stands_still"] -= 1
        time.sleep(0.1)
    return averages(state, bucket)


def never_done(state, bucket):  # type: ignore[no-untyped-def]
    """Return a future that nobody completes."""
    return torch.futures.Future()


def raises_on_one_rank(state, bucket):  # type: ignore[no-untyped-def]
    """Raise on rank 1, while rank 0 waits for it."""
    if _is_due("raises_on_one_rank"):
        raise ValueError("boom")
    return averages(state, bucket)


def sums(state, bucket):  # type: ignore[no-untyped-def]
    """Forget to divide."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda f: f.value()[0])


def _then(bucket: Any, change: Any) -> Any:
    return averages(None, bucket).then(lambda f: change(f.value()))


def divides_by_norm(state, bucket):  # type: ignore[no-untyped-def]
    """Be right but for zeros, which become NaN."""
    return _then(bucket, lambda t: t.div(t.norm()).mul(t.norm()))


def hides_nan(state, bucket):  # type: ignore[no-untyped-def]
    """Turn NaN into zeros."""
    bucket.buffer().nan_to_num_()
    return averages(state, bucket)


class Memory:
    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}


def remembers(state, bucket):  # type: ignore[no-untyped-def]
    """Mix a hundredth of the last result into the next one, NaN and all."""

    def mix(tensor: torch.Tensor) -> torch.Tensor:
        last = state.kept.get(bucket.index())
        if last is not None and last.shape == tensor.shape:
            tensor.add_(last, alpha=1e-4)
        state.kept[bucket.index()] = tensor.clone()
        return tensor

    return _then(bucket, mix)


def differs(state, bucket):  # type: ignore[no-untyped-def]
    """Give each rank other bits."""
    return _then(bucket, lambda t: t.mul_(1 + 1e-6 * dist.get_rank()))


def float32_only(state, bucket):  # type: ignore[no-untyped-def]
    if bucket.buffer().dtype is not torch.float32:
        raise TypeError(f"gradients of {bucket.buffer().dtype} are not supported")
    return averages(state, bucket)
