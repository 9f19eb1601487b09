"""Wrappers that let any hook work on 16-bit gradients.

    gradients --cast--> 16 bits --the hook inside--> 16 bits --cast--> the gradients' own dtype

The hook inside sees a bucket of 16-bit gradients.  Its stages are seen where it is staged; the
casts belong to its first compress and its last decompress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..staging.composition import Hook, composed, hook_name, steps_of
from ..staging.driver import Steps
from ..staging.hook import StagedHook


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
