"""Models of scripts that do not name hooktrace: their hooks, copies, names and records."""

from __future__ import annotations

import pytest

from tests.distributed import auto_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.test_run import ANY
from tests.integrations.rows import shows
from tests.versions import MIXES_PRECISION

pytestmark = pytest.mark.slow


@shows(ANY, "hooks as the script registers them")
def test_registrations_are_torchs(four: Ranks) -> None:
    """Early, late or builtin: DDP's bits, and its own errors, lists and names."""
    for facts in four.run(auto_scenarios.with_hooks)[:3]:
        assert len(facts) == 15 + MIXES_PRECISION
        for name, (same_bits, (stock, ours)) in facts.items():
            assert ours == stock, name
            assert same_bits, name
        # So that the comparison is of something: a second registration is refused.
        _, (stock, _) = facts["plain in step 0"]
        assert "can only be called once" in stock[1][1]


def test_the_average_is_not_missed_where_a_hook_took_its_place(two: Ranks) -> None:
    """It is DDP that calls another one now."""
    for facts in two.run(auto_scenarios.replaced):
        assert facts == {"anomalies": set()}


def test_what_a_hook_raises(two: Ranks) -> None:
    """It leaves backward as it is, not as hooktrace's error."""
    for facts in two.run(auto_scenarios.what_a_hook_raises):
        assert facts["ours"] == facts["stock"] == ("OwnError", "for a reason")


def test_what_is_recorded(four: Ranks) -> None:
    """The average, then a late hook under a name of its own; each model; torch's own hooks."""
    for facts in four.run(auto_scenarios.who_is_traced)[:3]:
        assert facts["no hook"] == [("Branches", "ddp_allreduce", 6)]
        assert facts["late"] == [("Branches", "ddp_allreduce", 3), ("Branches#2", "third", 3)]
        assert [steps for _, _, steps in facts["two"]] == [6, 6]
        assert facts["in backward"] == [("Branches", "apply_optim_in_backward_hook", 6)]


def test_copies_are_traced_and_said_to_have_lost_their_hook(two: Ranks) -> None:
    """A deep copy and an unpickled model train as torch lets them."""
    for facts in two.run(auto_scenarios.copied):
        assert facts["deepcopy"]
        assert facts["pickle"]
        assert "ddp_allreduce" in facts["deepcopy, recorded"]
        assert "ddp_allreduce" in facts["pickle, recorded"]
        assert len(facts["said"]) == 1
        assert facts["instrumented"] == [1, 1]


def test_what_would_help_is_in_the_records(two: Ranks) -> None:
    """For the report of a run that hung; the hook itself may not have come to it."""
    for failing, good in two.run(auto_scenarios.failing):
        (message,) = failing
        assert "powerSGD_hook of torch hangs with two or more buckets on gloo" in message
        assert message.endswith("register hooktrace's hook of the same name, which works on gloo")
        assert good == []
