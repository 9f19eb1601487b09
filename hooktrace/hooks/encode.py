"""A hook made of two functions: how gradients are encoded for the wire, and decoded after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..capture.buckets import GradBucketLike
from ..staging.collectives import AllReduce
from ..staging.composition import hook_name
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import StagedHook

Coder = Callable[[torch.Tensor], torch.Tensor]


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
