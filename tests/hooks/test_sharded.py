"""The list of hooks for FSDP's collectives: what it says that they send is what they send."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from hooktrace.fsdp.hooks import GatherHook, Gathering, Reduction, ScatterHook
from hooktrace.hooks.sharded import SHARDED_HOOKS, ShardedHookEntry

FOUR = SimpleNamespace(size=lambda: 4, rank=lambda: 1)
"""A group as far as a hook asks before it sends anything."""


def sent(entry: ShardedHookEntry, part: int) -> int:
    """Return the bytes that a hook hands to its first collective."""
    hook, group = entry.make(), cast(Any, FOUR)
    numbers = torch.randn(4 * part)
    if entry.takes_place_of == "reduce_scatter":
        assert isinstance(hook, ScatterHook)
        steps = hook.steps(Reduction(numbers, torch.empty(part), group, 4.0, "unit"))
    else:
        assert isinstance(hook, GatherHook)
        steps = hook.steps(Gathering(numbers[part : 2 * part], numbers, group, "unit"))
    return int(next(steps).tensor.nbytes)


@pytest.mark.parametrize("part", [1, 511, 512, 513, 4096])
@pytest.mark.parametrize("entry", SHARDED_HOOKS, ids=lambda entry: entry.call)
def test_as_many_bytes_are_sent_as_it_says(entry: ShardedHookEntry, part: int) -> None:
    """Of parts that do not fill a channel too."""
    assert sent(entry, part) == entry.sent_bytes(part, 4)


def test_a_listing_needs_no_torch() -> None:
    """It is imported when a hook is made."""
    code = "import sys, hooktrace.hooks.sharded; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
