"""``hooktrace check`` of the standard hooks, and of wrong hooks for FSDP's collectives."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist

from hooktrace.fsdp.hooks import GatherHook, Gathering, Reduction, ScatterHook
from hooktrace.hooks import catalogue
from hooktrace.hooks.sharded import SHARDED_HOOKS
from hooktrace.staging.collectives import AllGather, AllToAll
from hooktrace.staging.driver import Steps
from hooktrace.testing.check.launch import check
from hooktrace.testing.check.spec import HookSpec

pytestmark = [pytest.mark.slow, pytest.mark.long]


class Adds(ScatterHook):
    """Is right, and sends everything; others differ from it in one method."""

    name = "adds"

    def steps(self, reduction: Reduction) -> Steps:
        received = yield AllToAll(reduction.gradients, reduction.group)
        parts = received.view(reduction.group.size(), -1)
        return self.result(parts, reduction)

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        return parts.sum(0) / reduction.divisor


class Averages(Adds):
    """Averages, whatever is asked for."""

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        return parts.mean(0)


class DropsTheTail(Adds):
    """Leaves out what does not fill a channel of eight."""

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        total = parts.sum(0) / reduction.divisor
        total[len(total) // 8 * 8 :] = 0
        return total


class KeepsItsOwn(GatherHook):
    """Sends bfloat16, and does not decode what it has already."""

    name = "keeps its own"

    def steps(self, gathering: Gathering) -> Steps:
        own = gathering.own.clone()
        rows = yield AllGather(own.to(torch.bfloat16), gathering.group)
        whole = gathering.whole.view(gathering.group.size(), -1)
        whole.copy_(rows)
        whole[dist.get_rank()] = own
        return gathering.whole


FOUND = {
    "Adds": {},
    "Averages": {"wrong_scale": "The hook returns the average times a factor"},
    "DropsTheTail": {"wrong_gradients": "where float32 of every element explains 1e-05"},
    "KeepsItsOwn": {"replicas_diverge": "the ranks have different results"},
}
"""What is said of them, by kind."""


def test_wrong_hooks_are_named_and_a_right_one_passes() -> None:
    """In words that say what is wrong."""
    for name, expected in FOUND.items():
        spec = HookSpec.of(f"{__name__}:{name}")
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
