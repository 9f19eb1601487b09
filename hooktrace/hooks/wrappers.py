"""Hooks made of parts: any hook inside a cast to 16 bits, two functions around an all-reduce.

    gradients --cast--> 16 bits --the hook inside--> 16 bits --cast--> the gradients' own dtype
    gradients --encode--> any tensor --all-reduce--> the sum --decode--> gradients

The hook inside sees a bucket of 16-bit gradients.  Its stages are seen where it is staged; the
casts belong to its first compress and its last decompress.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..staging.collectives import AllReduce
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import Hook, StagedHook, composed, hook_name, steps_of
from ..staging.slots import GradBucketLike

Coder = Callable[[torch.Tensor], torch.Tensor]


def fp16_compress_wrapper(hook: Hook) -> StagedHook:
    """Return a hook that runs ``hook`` on gradients cast to float16.

    ``hook``: staged, or any function that takes ``(state, bucket)`` and returns a future; its state
    is registered with the wrapper.  Unlike with torch's wrapper the result has the dtype of the
    gradients, and the bucket's memory is what it was.  Gradients beyond 65504 become inf.

    Raises ``TypeError`` for what is no hook, and for one that is traced: trace the wrapper.
    """
    return _cast_around(hook, torch.float16, fp16_compress_wrapper)


def bf16_compress_wrapper(hook: Hook) -> StagedHook:
    """Return a hook that runs ``hook`` on gradients cast to bfloat16.

    As ``fp16_compress_wrapper``, with float32's range and 8 bits of precision; unlike torch's it
    works on gloo too.
    """
    return _cast_around(hook, torch.bfloat16, bf16_compress_wrapper)


def _cast_around(
    hook: Hook, dtype: torch.dtype, wrapper: Callable[[Hook], StagedHook]
) -> StagedHook:
    def cast(state: Any, bucket: Any) -> Steps:
        buffer: torch.Tensor = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        result = yield from steps_of(hook, state, bucket)
        return buffer.copy_(result)

    name = f"{wrapper.__name__}({hook_name(hook)})"
    return composed(cast, hook, name=name, made_by=(wrapper, (hook,)), floating=True)


def encode_and_decode(encode: Coder, decode: Coder, *, average: bool = True) -> StagedHook:
    """Return a hook that all-reduces encoded gradients: torch's documentation's example.

    ``encode``: takes the flat gradients, shape (numel,), and returns a contiguous tensor of any
    shape and of a dtype that the backend can add.  It may work in place.  ``decode``: takes the sum
    of all ranks' encoded tensors and returns a tensor of numel elements, of any floating dtype.
    ``average``: divide what ``decode`` returns by the world size, which is right wherever decoding
    a sum gives the sum of the gradients; with ``False`` the two functions see to it.

    The hook's state is the process group, ``None`` for the default one.  It pickles when both
    functions do.  Raises ``TypeError`` for what cannot be called; in a backward pass, when
    ``decode`` returns another number of elements.
    """
    for name, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise TypeError(
                f"encode_and_decode: {name} is a {type(function).__name__}; "
                "pass a function of one tensor"
            )

    def encoded(state: Any, bucket: GradBucketLike) -> Steps:
        group, buffer = group_of(state), bucket.buffer()
        # The functions may work in place, and `encode` may return the buffer itself.
        numel, dtype = buffer.numel(), buffer.dtype
        total = yield AllReduce(encode(buffer).contiguous(), group)
        result = decode(total)
        if result.numel() != numel:
            raise ValueError(
                f"decode returned {result.numel()} elements for a bucket of {numel}; "
                "return one for each gradient"
            )
        result = result.flatten().to(dtype)
        return result.div_(group.size()) if average else result

    return StagedHook(
        encoded,
        check=group_of,
        name=f"encode_and_decode({hook_name(encode)}, {hook_name(decode)})",
        made_by=(partial(encode_and_decode, average=average), (encode, decode)),
    )
