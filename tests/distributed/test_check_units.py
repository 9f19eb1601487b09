"""``hooktrace check`` of hooks for FSDP's collectives: wrong ones are named, on real ranks."""

from __future__ import annotations

import pytest

from hooktrace.hooks.sharded import SHARDED_HOOKS
from hooktrace.testing.check.launch import check
from hooktrace.testing.check.spec import HookSpec
from hooktrace.testing.check.standard import standard_hooks

pytestmark = [pytest.mark.slow, pytest.mark.long]

FOUND = {
    "Adds": {},
    "Averages": {"wrong_scale": "The hook returns the average times a factor"},
    "DropsTheTail": {"wrong_gradients": "where float32 of every element explains 1e-05"},
    "KeepsItsOwn": {"replicas_diverge": "the results are not the same on all ranks"},
}
"""Hooks of ``check_units.py``, and what is said of them, by kind."""


def test_wrong_hooks_are_named_and_a_right_one_passes() -> None:
    """In words that say what is wrong."""
    specs = [HookSpec(name=name, hook=f"tests.distributed.check_units:{name}") for name in FOUND]
    for result in check(specs, ranks=3, cases=["arithmetic", "odd-sizes"]):
        kinds = {problem.kind: problem.message for problem in result.problems}
        for kind, message in FOUND[result.hook].items():
            assert message in kinds[kind]
        assert bool(kinds) == bool(FOUND[result.hook]), result


def test_the_standard_ones_pass() -> None:
    """Float16 cannot hold what float32 can, and that is told."""
    own = [spec for spec in standard_hooks() if spec.name in {e.call for e in SHARDED_HOOKS}]
    assert len(own) == len(SHARDED_HOOKS)
    for result in check(own, ranks=2):
        kinds = {problem.kind for problem in result.problems}
        assert kinds == ({"overflow"} if result.hook.startswith("fp16") else set()), result
