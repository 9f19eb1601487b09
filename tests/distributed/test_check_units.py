"""``hooktrace check`` of hooks for FSDP's collectives: wrong ones are named, on real ranks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hooktrace.fsdp import hooks
from hooktrace.hooks.sharded import SHARDED_HOOKS
from hooktrace.records.errors import UsageError
from hooktrace.testing import check_hook
from hooktrace.testing.check import CheckResult
from hooktrace.testing.check.launch import check
from hooktrace.testing.check.scenarios import chosen
from hooktrace.testing.check.spec import HookSpec
from hooktrace.testing.check.standard import standard_hooks
from tests.distributed import check_units

pytestmark = [pytest.mark.slow, pytest.mark.long]

RANKS = 3
HOOKS = "tests.distributed.check_units"

WRONG = {
    "Sums": ("arithmetic", "not_averaged", "The hook returns the sum of the gradients"),
    "Averages": ("arithmetic", "wrong_scale", "The hook returns the average times a factor"),
    "DropsTheTail": (
        "odd-sizes",
        "wrong_gradients",
        "where float32 of every element explains 1e-05",
    ),
    "SharesResiduals": ("arithmetic", "wrong_gradients", "the ranks' gradients do not weigh 1/n"),
    "GivesTheWhole": ("arithmetic", "hook_exception", "return a tensor of 2048 elements"),
    "KeepsItsOwn": ("arithmetic", "replicas_diverge", "the results are not the same on all ranks"),
    "LeavesOneOut": ("arithmetic", "nonfinite_result", "gave NaN or inf in 2048 of 6144 elements"),
}
"""The case that finds it, the kind, and a part of the message."""

RIGHT = ["made", "maker", "Gathers"]
CONTROLS = ["Adds", "Feeds"]
"""Right ones, from which most of the wrong ones differ in one method."""


def checked(names: Iterable[str], ranks: int, *cases: str) -> dict[str, CheckResult]:
    specs = [HookSpec(name=name, hook=f"{HOOKS}:{name}") for name in names]
    return {result.hook: result for result in check(specs, ranks=ranks, cases=cases)}


@pytest.fixture(scope="module")
def results() -> dict[str, CheckResult]:
    """Wrong hooks, in the cases that are made for them."""
    found = {}
    for key in dict.fromkeys(case for case, _, _ in WRONG.values()):
        names = [name for name, (case, _, _) in WRONG.items() if case == key]
        found |= checked([*names, *CONTROLS, *RIGHT] if key == "arithmetic" else names, RANKS, key)
    return found


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hook_is_named(results: dict[str, CheckResult], name: str) -> None:
    """By the case that is made for it, in words that say what is wrong."""
    _, kind, message = WRONG[name]
    (case,) = results[name].cases
    found = [problem for problem in case.problems if problem.kind == kind]
    assert found, case
    assert message in found[0].message


def test_right_hooks_pass(results: dict[str, CheckResult]) -> None:
    """Instances, classes and functions that make one; and those that wrong ones differ from."""
    found = {name: results[name].problems for name in (*RIGHT, *CONTROLS)}
    assert found == dict.fromkeys(found, ())


def test_the_standard_ones_pass() -> None:
    """Float16 cannot hold what float32 can, and that is told."""
    own = [spec for spec in standard_hooks() if spec.name in {e.call for e in SHARDED_HOOKS}]
    assert len(own) == len(SHARDED_HOOKS)
    for result in check(own, ranks=2):
        kinds = {problem.kind for problem in result.problems}
        assert kinds == ({"overflow"} if result.hook.startswith("fp16") else set()), result


def test_one_is_checked_in_a_test() -> None:
    """As a hook of DDP's is."""
    result = check_hook(hooks.EightBitAllGather(), cases=["arithmetic"])
    assert (result.hook, result.verdict) == ("eight_bit_all_gather(channel=512)", "pass")


def test_what_is_of_ddp_is_refused() -> None:
    """A state, and cases of DDP's."""
    with pytest.raises(UsageError, match="keeps its own state"):
        HookSpec.of(check_units.made, f"{HOOKS}:maker").load()
    with pytest.raises(UsageError, match="no case is called 'join'; the cases are arithmetic"):
        chosen(["join"], HookSpec.of(check_units.made).load())
