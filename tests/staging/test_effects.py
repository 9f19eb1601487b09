"""Which hooks may be run on trial for the local error: those that keep nothing of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace import AllReduce, hooks, staged
from hooktrace.hooks import catalogue
from hooktrace.staging.hook import StagedHook


def inside(kept: Any) -> Any:
    """Return a function whose closure has something."""
    return lambda: kept


def made(kept: Any) -> StagedHook:
    """Return a hook whose closure has something."""

    @staged
    def hook(state: Any, bucket: Any) -> Any:
        assert kept is not hook
        return (yield AllReduce(bucket.buffer()))

    return hook


@pytest.mark.parametrize(
    "hook",
    [
        *(entry.hook for entry in catalogue() if isinstance(entry.hook, StagedHook)),
        hooks.quantization_perchannel_hook.bind(bucket_size=128),
        hooks.fp16_compress_wrapper(hooks.powerSGD_hook),
        hooks.encode_and_decode(torch.neg, lambda total: -total),
        made(torch.float16),
        made((1, "two", len)),
    ],
    ids=repr,
)
def test_hooks_that_keep_nothing(hook: StagedHook) -> None:
    """The standard ones, bound, composed, and those made with settings."""
    assert not hook.has_effects


@pytest.mark.parametrize(
    "kept",
    [{}, [], torch.zeros(1), object(), ({},), inside({})],
    ids=["dict", "list", "tensor", "object", "dict in a tuple", "dict in a closure"],
)
def test_a_closure_that_may_keep_something(kept: Any) -> None:
    """An error feedback in a dictionary, a tensor, an object, also one function further in."""
    assert made(kept).has_effects
    assert hooks.fp16_compress_wrapper(made(kept)).has_effects
    assert made(made(kept)).has_effects


def test_what_is_declared_holds() -> None:
    """Where hooktrace cannot see it: a global."""

    @staged(has_effects=True)
    def declared(state: Any, bucket: Any) -> Any:
        return (yield AllReduce(bucket.buffer()))

    assert declared.has_effects
    assert declared.bind().has_effects
