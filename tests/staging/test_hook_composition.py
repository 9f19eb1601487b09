"""Hooks built of hooks: what the outer one takes from the inner, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hooktrace import Tracer, hooks, trace
from hooktrace.staging.hook import StagedHook, composed, hook_name, steps_of


def around(hook: Any) -> StagedHook:
    """Return a hook that does what another one does."""

    def outer(state: Any, bucket: Any) -> Iterator[Any]:
        return (yield from steps_of(hook, state, bucket))

    return composed(outer, hook, name=f"around({hook_name(hook)})", made_by=(around, (hook,)))


def test_it_is_as_local_and_as_checked_as_the_inner_one() -> None:
    """So that probes and registration treat it alike."""
    assert around(hooks.noop_hook).local
    assert not around(hooks.allreduce_hook).multi_round
    with pytest.raises(TypeError, match="PowerSGDState"):
        around(hooks.powerSGD_hook).check_state(object())


def test_what_is_no_hook_is_refused() -> None:
    """With what to do."""
    with pytest.raises(TypeError, match=r"around\(int\) needs a hook, a callable .* not a int"):
        around(3)
    with Tracer() as tracer, pytest.raises(TypeError, match="trace the outermost hook"):
        around(trace(hooks.allreduce_hook, tracer=tracer))
