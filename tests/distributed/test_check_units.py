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
from hooktrace.testing.check.spec import HookSpec
from hooktrace.testing.check.standard import standard_hooks
from tests.distributed import check_units

pytestmark = pytest.mark.slow

RANKS = 3

HOOKS = "tests.distributed.check_units"

WRONG = {
    "DividesTwice": ("sums", "averaged_twice", "is the sum over ranks, divided by {n} twice"),
    "Sums": ("sums", "not_averaged", "is the sum over ranks, which is not divided by {n}"),
    "Averages": ("sums", "wrong_scale", "is divided by the {n} ranks, not by 1; divide by red"),
    "Subtracts": ("sums", "wrong_sign", "is -1 times the sum over ranks / {n}"),
    "ForgetsARank": ("sums", "ranks_missing", "the gradients of rank(s) {last} are not in this"),
    "DropsTheTail": ("odd-sizes", "wrong_gradients", "of a part of 1 elements the last one is"),
    "HidesNan": ("nan", "nan_hidden", "a NaN of one rank went in and finite numbers came out"),
    "KeepsNan": ("nan", "nan_stays_in_state", "after a NaN and an inf still gave NaN or inf"),
    "SharesResiduals": ("units", "wrong_gradients", "under its own name, reduction.unit"),
    "OwesTheOtherWay": ("feedback", "wrong_gradients", "does not make up for what is lost"),
    "RefusesBfloat16": ("bfloat16", "not_supported", "unsupported ScalarType BFloat16"),
    "GivesTheWhole": ("sums", "hook_exception", "return a tensor of 2048 elements"),
    "KeepsItsOwn": ("parameters", "replicas_diverge", "rank 0 keeps its own parameters as they"),
    "Swaps": ("parameters", "wrong_parameters", "place of rank 0's parameters there are rank"),
    "LeavesOneOut": ("parameters", "nonfinite_result", "write all of gathering.whole"),
    "DropsParameters": ("odd-sizes", "wrong_parameters", "of rank 0's 1 parameters the last one"),
    "Jitters": ("parameters", "replicas_diverge", "the ranks have decoded different parameters"),
}
"""The case that finds it, the kind, and a part of the message."""

RIGHT = ["made", "maker", "Adds", "Feeds", "Gathers"]


def checked(names: Iterable[str], ranks: int, *cases: str) -> dict[str, CheckResult]:
    """Return the results of hooks, made in one run."""
    specs = [HookSpec(name=name, hook=f"{HOOKS}:{name}") for name in names]
    return {result.hook: result for result in check(specs, ranks=ranks, cases=cases)}


@pytest.fixture(scope="module")
def results() -> dict[str, CheckResult]:
    """Wrong hooks, in the cases that are made for them."""
    found = {}
    for key in CASE_NAMES:
        names = [name for name, (case, _, _) in WRONG.items() if case == key]
        found |= checked(names, RANKS, key)
    return found


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hook_is_named(results: dict[str, CheckResult], name: str) -> None:
    """By the case that is made for it, in words that say what is wrong."""
    key, kind, message = WRONG[name]
    (case,) = results[name].cases
    assert case.case == CASE_NAMES[key]
    found = [problem for problem in case.problems if problem.kind == kind]
    assert found, case
    assert message.format(n=RANKS, last=RANKS - 1) in found[0].message


CASE_NAMES = {
    "sums": "averages, sums, set factors",
    "odd-sizes": "odd sizes",
    "nan": "NaN and inf on one rank",
    "units": "several units",
    "feedback": "the same gradients again",
    "bfloat16": "bfloat16",
    "parameters": "parameters",
}


def test_right_hooks_pass() -> None:
    """Instances, classes and functions that make one, in all cases."""
    for name, result in checked(RIGHT, 2).items():
        assert result.problems == (), name


def test_the_standard_ones_pass() -> None:
    """On four ranks; float16 cannot hold what float32 can, and that is told."""
    own = [spec for spec in standard_hooks() if spec.name in {e.call for e in SHARDED_HOOKS}]
    assert len(own) == len(SHARDED_HOOKS)
    for result in check(own, ranks=4):
        kinds = {problem.kind for problem in result.problems}
        assert kinds == ({"overflow"} if result.hook.startswith("fp16") else set()), result


def test_one_is_checked_in_a_test() -> None:
    """As a hook of DDP's is; what is wrong is raised."""
    result = check_hook(hooks.EightBitAllGather(), cases=["parameters"])
    assert result.hook == "eight_bit_all_gather(channel=512)"
    assert result.verdict == "pass"
    with pytest.raises(AssertionError, match="not_averaged"):
        check_hook(f"{HOOKS}:Sums", cases=["sums"])


def test_what_is_of_ddp_is_refused() -> None:
    """A state, and cases of DDP's."""
    with pytest.raises(UsageError, match="keeps its own state"):
        check_hook(check_units.made, f"{HOOKS}:maker")
    with pytest.raises(UsageError, match="no case is called 'join'; the cases are sums"):
        check_hook(check_units.made, cases=["join"])
