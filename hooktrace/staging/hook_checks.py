"""What a hook may be given, and what it may give back; DDP itself checks almost nothing."""

from __future__ import annotations

from typing import Any

import torch

from .slots import BucketSlot

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


def wrong_result(result: Any, slot: BucketSlot | None) -> TypeError | None:
    """Return the error for what a hook gave as the averaged gradients; ``None`` if it is good.

    ``slot``: the bucket's; without one, untraced, only the type is looked at.
    """
    wrong = None
    if isinstance(result, BaseException):
        wrong = (
            f"the future holds the exception {type(result).__name__}: {result}, which DDP takes "
            "for a result; raise it in a callback that is given to then()"
        )
    elif isinstance(result, list | tuple) and any(isinstance(x, torch.Tensor) for x in result):
        wrong = (
            f"the hook returned {_kind(result)} of {len(result)}, as a collective's own future "
            "holds it; return the tensor in it: future.then(lambda f: f.value()[0])"
        )
    elif not isinstance(result, torch.Tensor):
        wrong = (
            f"the hook returned {_kind(result)}; return the averaged gradients, "
            "a flat tensor like bucket.buffer()"
        )
    elif slot is not None and slot.is_dense:
        wrong = _wrong_tensor(result, slot)
    return None if wrong is None else TypeError(wrong)


def _wrong_tensor(result: torch.Tensor, slot: BucketSlot) -> str | None:
    wrong = None
    if result.layout is not torch.strided:
        wrong = f"is {_bare(result.layout)}; return a dense tensor: result.to_dense()"
    elif result.device != slot.device:
        wrong = f"is on {result.device}; return it on the bucket's device, {slot.device}"
    elif result.numel() != slot.numel:
        wrong = (
            f"has {result.numel()} elements and the bucket {slot.numel}; return one value for each "
            "gradient, without what was padded"
        )
    elif result.dtype is not slot.torch_dtype and not result.is_floating_point():
        wrong = (
            f"is {_bare(result.dtype)} and the gradients are {slot.dtype}; convert it back: "
            "result.to(bucket.buffer().dtype)"
        )
    elif not result.is_contiguous():
        wrong = (
            f"has strides {result.stride()}, and DDP reads it as if it were contiguous; "
            "return result.contiguous(), or copy it into bucket.buffer()"
        )
    elif result.storage_offset() != 0:
        wrong = (
            f"begins at offset {result.storage_offset()} of its storage, and DDP reads from offset "
            "0; return result.clone(), or copy it into bucket.buffer()"
        )
    return None if wrong is None else f"the result {wrong}"


def no_future(returned: Any) -> TypeError:
    """Return the error for a plain hook that returned no future: of None DDP would crash."""
    return TypeError(
        f"the hook returned {_kind(returned)} and not a future; return a torch.futures.Future of "
        "the averaged gradients, such as work.get_future().then(...)"
    )


def compiled_reducer(hook: str) -> TypeError:
    """Return the error for a hook that is given a parameter's gradient, not a bucket.

    torch's compiled python reducer calls hooks so, while it traces the backward graph.
    """
    return TypeError(
        f"hook {hook} cannot run under the compiled python reducer, which has no buckets; set "
        "torch._dynamo.config.optimize_ddp = True before the DDP model is made"
    )


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _bare(value: object) -> str:
    return str(value).removeprefix("torch.")
