"""What DDP takes for granted of a hook's result, checked on every traced call before DDP sees it.

DDP lays views of the parameters' shapes over the memory of the result, by offsets from the
beginning of its *storage*, and checks nothing.  Tried with torch 2.13: a wrong stride, a storage
offset or an integer dtype gives wrong gradients in silence, complex values lose their imaginary
part, elements in excess are cut off, and what is no tensor fails without naming the hook.  A result
of another real floating-point dtype, as torch's own ``fp16_compress_wrapper`` gives, is converted
correctly, so it passes.
"""

from __future__ import annotations

from typing import Any

import torch

from ..capture.buckets import BucketSlot


def wrong_result(result: Any, slot: BucketSlot | None) -> TypeError | None:
    """Return the error for what a hook gave as the averaged gradients; ``None`` if it is good.

    ``slot``: the bucket's; without one, untraced, only the type is looked at.
    """
    if isinstance(result, torch.Tensor):
        complaint = None if slot is None else _complaint(result, slot)
    else:
        complaint = _not_a_tensor(result)
    return None if complaint is None else TypeError(complaint)


def no_future(returned: Any) -> TypeError:
    """Return the error for an opaque hook that returned anything but a future.

    None would end the process with a segmentation fault.
    """
    return TypeError(
        f"the hook returned {_kind(returned)} and not a future; return a torch.futures.Future of "
        "the averaged gradients, such as work.get_future().then(...)"
    )


def _complaint(result: torch.Tensor, slot: BucketSlot) -> str | None:
    if (
        result.dtype is slot.torch_dtype
        and result.layout is torch.strided
        and result.device == slot.device
        and result.numel() == slot.numel
        and result.storage_offset() == 0
        and result.is_contiguous()
    ):
        return None
    if not slot.is_dense:
        return None  # a sparse bucket's result is sparse, and DDP reads it otherwise
    if result.layout is not torch.strided:
        return f"the result is {_bare(result.layout)}; return a dense tensor: result.to_dense()"
    if result.device != slot.device:
        return f"the result is on {result.device}; return it on the bucket's device, {slot.device}"
    if result.numel() != slot.numel:
        return (
            f"the result has {result.numel()} elements and the bucket {slot.numel}; return one "
            "value for each gradient, without what was padded"
        )
    return _wrong_dtype(result, slot) or _wrong_memory(result)


def _wrong_dtype(result: torch.Tensor, slot: BucketSlot) -> str | None:
    if result.dtype is slot.torch_dtype or result.is_floating_point():
        return None
    return (
        f"the result is {_bare(result.dtype)} and the gradients are {slot.dtype}; "
        "convert it back: result.to(bucket.buffer().dtype)"
    )


def _wrong_memory(result: torch.Tensor) -> str | None:
    if not result.is_contiguous():
        return (
            f"the result has strides {result.stride()}, and DDP reads it as if it were contiguous; "
            "return result.contiguous(), or copy it into bucket.buffer()"
        )
    if result.storage_offset() != 0:
        return (
            f"the result begins at offset {result.storage_offset()} of its storage, and DDP reads "
            "from offset 0; return result.clone(), or copy it into bucket.buffer()"
        )
    return None


def _not_a_tensor(result: Any) -> str:
    if isinstance(result, BaseException):
        return (
            f"the future holds the exception {type(result).__name__}: {result}, which DDP takes "
            "for a result; raise it in a callback that is given to then()"
        )
    if isinstance(result, list | tuple) and any(isinstance(x, torch.Tensor) for x in result):
        return (
            f"the hook returned {_kind(result)} of {len(result)}, as a collective's own future "
            "holds it; return the tensor in it: future.then(lambda f: f.value()[0])"
        )
    return (
        f"the hook returned {_kind(result)}; return the averaged gradients, "
        "a flat tensor like bucket.buffer()"
    )


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _bare(value: object) -> str:
    return str(value).removeprefix("torch.")
