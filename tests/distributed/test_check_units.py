"""``hooktrace check`` of the standard hooks, and of wrong hooks for FSDP's collectives."""

from __future__ import annotations

from functools import partial

import pytest

from hooktrace.hooks import catalogue
from hooktrace.hooks.sharded import SHARDED_HOOKS
from hooktrace.testing.check.launch import check
from hooktrace.testing.check.spec import HookSpec

pytestmark = [pytest.mark.slow, pytest.mark.long]

FOUND = {
    "Adds": {},
    "Averages": {"wrong_scale": "The hook returns the average times a factor"},
    "DropsTheTail": {"wrong_gradients": "where float32 of every element explains 1e-05"},
    "KeepsItsOwn": {"replicas_diverge": "the ranks have different results"},
}
"""Hooks of ``check_units.py``, and what is said of them, by kind."""


def test_wrong_hooks_are_named_and_a_right_one_passes() -> None:
    """In words that say what is wrong."""
    for name, expected in FOUND.items():
        spec = HookSpec.of(f"tests.distributed.check_units:{name}")
        result = check(spec, ranks=3, cases=["arithmetic", "odd-sizes"])
        kinds = {problem.kind: problem.message for problem in result.problems}
        for kind, message in expected.items():
            assert message in kinds[kind]
        assert bool(kinds) == bool(expected), result


STANDARD = {
    entry.name: HookSpec.of(entry.hook, partial(entry.make_state, **entry.check_options))
    for entry in catalogue()
} | {entry.call: HookSpec.of(entry.make()) for entry in SHARDED_HOOKS}


@pytest.mark.parametrize("name", STANDARD)
def test_the_standard_ones_pass(name: str) -> None:
    """Float16 cannot hold what float32 can, and PowerSGD keeps a NaN; both are told."""
    kinds = {problem.kind for problem in check(STANDARD[name]).problems}
    expected = {"overflow"} if name.startswith("fp16") else set()
    assert kinds == ({"nan_stays_in_state"} if "powersgd" in name else expected)
