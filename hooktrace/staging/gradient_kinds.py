"""Which gradients a hook can work with: dense, real and floating-point ones, where it says so."""

from __future__ import annotations

from typing import Any

import torch

_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


def refuse_bucket(hook: str, bucket: Any) -> None:
    """Raise ``TypeError`` for a bucket that is sparse, complex or of integers."""
    buffer = bucket.buffer()
    if buffer.layout is not torch.strided:
        raise _not_floating(hook, f"bucket {bucket.index()}", "sparse")
    if not buffer.is_floating_point():
        raise _not_floating(hook, f"bucket {bucket.index()}", buffer.dtype)


def refuse_model(hook: str, model: torch.nn.Module) -> None:
    """Raise ``TypeError`` for a model with a parameter whose gradient would be one of these."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not parameter.is_floating_point():
            raise _not_floating(hook, name, parameter.dtype)
    for name, module in model.named_modules():
        # By which DDP, too, finds out which gradients will be sparse.
        if getattr(module, "sparse", False) and isinstance(module, _EMBEDDINGS):
            raise _not_floating(hook, name, "sparse")


def _not_floating(hook: str, what: str, kind: object) -> TypeError:
    return TypeError(
        f"hook {hook} takes dense real floating-point gradients, and those of {what} "
        f"are {str(kind).removeprefix('torch.')}; use allreduce_hook for this model, "
        "or keep such parameters out of DDP"
    )
