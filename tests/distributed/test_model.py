"""Which probes of a model take place, as its ranks agree on them."""

from __future__ import annotations

import pytest

from tests.distributed import probe_scenarios, trouble_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.test_probes import FIRST, STEPS

pytestmark = pytest.mark.slow


def test_ranks_agree_on_what_is_probed(two: Ranks) -> None:
    """Two models and no_sync: the same buckets on both ranks; nothing where they cannot agree."""
    first, second = two.run(probe_scenarios.schedules)
    assert first["model0"] == second["model0"]
    assert first["model1"] == second["model1"]
    assert [step for step, _ in first["model0"]] == [12, 15, 18, 21, 24, 27]
    assert [step for step, _ in first["model1"]] == [12, 15, 18, 21, 24, 27]
    assert first["one rank"] == []
    for rank, facts in enumerate((first, second)):
        said = [
            ("error_every=1", "error_every=2"),
            ("error_all_buckets=False", "error_all_buckets=True"),
            ("local=False", "local=True"),
        ]
        for message, wishes in zip(facts["different wishes"], said, strict=True):
            assert "is no longer measured: " in message
            if "the ranks want different probes" in message:
                own, other = wishes[rank], wishes[1 - rank]
                assert message.index(own) < message.index(other) < message.index("give all")
            else:
                assert f"rank {1 - rank} has closed its tracer, or its log says why" in message


def test_ranks_meet_again_after_a_pause(two: Ranks) -> None:
    """Also after a second one; the same steps are probed on both, and one warning says it."""
    ranks = two.run(probe_scenarios.paused)
    first, second = (probed for probed, _, _ in ranks)
    assert first == second
    steps = {step for step, _ in first}
    assert {11, 12, 13} <= steps
    assert not steps & {14, 15, 40, 41}
    assert {*range(30, 40), *range(55, 60)} <= steps
    failed = [failed for _, failed, _ in ranks]
    assert max(failed) == 2
    assert min(failed) >= 1
    for _, _, messages in ranks:
        (message,) = messages
        assert message.startswith("1 record(s) lost (probe_failed: RuntimeError: ")
        assert "the ranks meet again some steps later" in message


def test_ranks_that_record_other_steps_count_all_of_them(two: Ranks) -> None:
    """A probe to which one does not come fails, and they meet again: of the same steps."""
    first, second = two.run(probe_scenarios.switched)
    assert first[0] == second[0]
    steps = [step for step, _ in first[0]]
    assert steps[:2] == [12, 14]
    assert steps[-5:] == list(range(steps[-1] - 8, steps[-1] + 1, 2))
    assert steps[-1] >= 48
    assert max(first[1], second[1]) == 1


def test_ranks_that_pause_some_calls_apart_agree_on_numbers(two: Ranks) -> None:
    """Also from before the first step, while DDP rebuilds its buckets, and of shadowed steps."""
    last = [*range(30, 40)]
    expected = {"first": last, "rebuilt": last, "static": last, "joined": last}
    assert two.run(probe_scenarios.paused_apart) == [expected, expected]


def test_probes_leave_nothing_to_the_garbage_collector(two: Ranks) -> None:
    """50 of them, of 4 MiB each, may keep what a few buckets take, which is the allocator's."""
    for probes, kept in two.run(probe_scenarios.uncollected):
        assert probes == 75 - FIRST
        assert kept < 60


def test_a_forked_child_ends_no_probes(two: Ranks) -> None:
    """It closes what tracers are open, as each process does at its end."""
    for probed in two.run(probe_scenarios.forked):
        assert [step for step, _ in probed] == list(range(FIRST, STEPS))


def test_a_model_on_some_ranks_is_compared_on_these(four: Ranks) -> None:
    """The group is ``instrument``'s; where nobody says which it is, it is not guessed."""
    for facts in four.run(probe_scenarios.subgroups):
        errors, anomalies = facts["instrument"]
        assert (errors, anomalies) == ([0.0] * (STEPS - FIRST), [])
        assert facts["trace"] == ([], [])


def test_ranks_that_drifted_begin_after_the_last_one(two: Ranks) -> None:
    """All learn the largest step at which one came to the meeting."""
    assert two.run(probe_scenarios.drifted) == [17, 17]


@pytest.mark.parametrize("what", trouble_scenarios.KINDS)
def test_what_fails_on_one_rank_holds_nobody_up(two: Ranks, what: str) -> None:
    """The others do not wait for it until their timeout; all meet again, and gradients stay."""
    ranks = [facts[what] for facts in two.run(trouble_scenarios.alone)]
    for same, longest, probed, _ in ranks:
        assert same
        assert longest < trouble_scenarios.PATIENCE_S / 2
        assert len(probed) > trouble_scenarios.STEPS / 4
        assert probed[-1] == trouble_scenarios.STEPS - 1
    (*_, first, _), (*_, second, losses) = ranks
    assert abs(len(first) - len(second)) <= 1
    assert sum(losses.values()) >= 1


def test_a_forked_child_may_let_go_of_its_models(two: Ranks) -> None:
    """The end of the connections would wait for threads that it has not."""
    assert two.run(trouble_scenarios.forgotten_in_a_child) == [0, 0]
