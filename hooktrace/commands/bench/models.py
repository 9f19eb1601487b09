"""A model whose gradient buckets are known: a stack of square layers, one or several a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def linear_stack(
    width: int, layers: int, hook: Callable[..., Any], state: Any = None, *, cap_mb: float = 0.0
) -> DistributedDataParallel:
    """Return a DDP model of ``layers`` layers without bias, ``width`` x ``width`` in float32.

    ``cap_mb``: DDP's limit of a bucket; without it each layer is a bucket.
    """
    torch.manual_seed(0)
    stack = [torch.nn.Linear(width, width, bias=False) for _ in range(layers)]
    model = DistributedDataParallel(
        torch.nn.Sequential(*stack), bucket_cap_mb=cap_mb or width * width * 4 / 2**20
    )
    model.register_comm_hook(state, hook)
    return model
