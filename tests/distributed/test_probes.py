"""Compression error and diagnosis on 2 and on 4 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import probe_scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow

FIRST, STEPS = 11, probe_scenarios.STEPS


def test_every_due_step_is_probed_one_bucket_in_turn(four: Ranks) -> None:
    """From the step that the ranks agree on, ranks in step meet at 10."""
    for facts in four.run(probe_scenarios.known_errors):
        steps = [(step, bucket) for step, bucket, *_ in facts["allreduce"]]
        buckets = max(bucket for _, bucket in steps) + 1
        assert buckets >= 5
        assert steps == [(s, (s - FIRST) % buckets) for s in range(FIRST, STEPS)]


@pytest.mark.parametrize("hook", ["allreduce", "torch's allreduce"])
def test_a_lossless_hook_has_no_error_at_all(four: Ranks, hook: str) -> None:
    """Exactly: the reference rounds as it does."""
    for facts in four.run(probe_scenarios.known_errors):
        assert len(facts[hook]) == STEPS - FIRST
        for _, _, relative, cosine, largest, flips in facts[hook]:
            assert (relative, largest, flips) == (0.0, 0.0, 0.0)
            assert cosine == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("hook", "digits"), [("fp16", 11), ("torch's fp16", 11), ("bf16", 8)])
def test_a_cast_stays_within_its_rounding(four: Ranks, hook: str, digits: int) -> None:
    """Each of n summands and each of n - 1 sums is rounded once, by at most 2^-digits."""
    ranks = len(four.run(probe_scenarios.known_errors))
    for facts in four.run(probe_scenarios.known_errors):
        assert len(facts[hook]) == STEPS - FIRST
        for *_, relative, cosine, _, _ in facts[hook]:
            assert 0 < relative <= 2 * ranks * 2.0**-digits
            assert cosine > 0.999


def test_noop_has_the_error_of_the_local_gradient(four: Ranks) -> None:
    """Large, and no anomaly: it is declared local."""
    for facts in four.run(probe_scenarios.known_errors):
        for *_, relative, cosine, _, _ in facts["noop"]:
            assert relative > 0.05
            assert cosine < 1
        assert [v for k, v in facts.items() if k.endswith("anomalies")] == [[]] * 7


def test_powersgd_is_never_better_than_the_best_approximation(two: Ranks) -> None:
    """The bound is Eckart and Young's; 20 warm-started steps of one matrix come close to it."""
    for facts in two.run(probe_scenarios.powersgd_against_svd):
        for measured, best in facts:
            assert best <= measured * (1 + 1e-5)
            assert measured <= best * 1.05


def test_probing_leaves_training_as_it_is(two: Ranks) -> None:
    """Bit for bit, one bucket in turn and all of them."""
    for facts in two.run(probe_scenarios.untouched):
        assert len(facts) == 12
        assert [name for name, fine in facts.items() if not fine] == []


@pytest.mark.parametrize("hook", probe_scenarios.WRONG)
def test_a_wrong_hook_is_named(four: Ranks, hook: str) -> None:
    """By what it does, once a bucket."""
    ranks, (kind, *_) = four.run(probe_scenarios.diagnoses), hook.split()
    for facts in ranks:
        kinds = [k for k, _ in facts[hook]]
        # A hook that does not communicate makes the replicas diverge too.
        follows = {"replicas_diverge"} if kind == "not_communicated" else set()
        assert set(kinds) - follows == {kind}
        kinds = [found for found in kinds if found == kind]
        buckets = 6
        assert (1 if kind == "nonfinite_result" else buckets) <= len(kinds) <= buckets
        if kind == "replicas_diverge":
            ranks_apart = " and ".join(f"[{r}]" for r in range(len(ranks)))
            assert f"were not the same on ranks {ranks_apart}; give" in facts[hook][0][1]
        assert "hook 'made', bucket " in facts[hook][0][1]


def test_ranks_with_the_same_data_hide_a_sum_from_nobody(four: Ranks) -> None:
    """And nothing else is called wrong, since their own gradients are the average."""
    for facts in four.run(probe_scenarios.diagnoses):
        assert facts["divided after, alike"] == []
        assert {kind for kind, _ in facts["not_averaged, alike"]} == {"not_averaged"}
        assert facts["not_communicated, alike"] == []


def test_a_missing_rank_is_named(four: Ranks) -> None:
    """By its number."""
    for facts in four.run(probe_scenarios.diagnoses):
        assert (
            "the gradients of rank(s) 1, 2, 3 are not in the result"
            in (facts["ranks_missing"][0][1])
        )


@pytest.mark.parametrize("name", probe_scenarios.RIGHT)
def test_an_unusual_hook_raises_no_alarm(four: Ranks, name: str) -> None:
    """Lossy and clipped results are a hook's own business."""
    for facts in four.run(probe_scenarios.diagnoses):
        assert facts[name] == []


def test_an_overflow_is_told_from_a_bad_gradient(two: Ranks, four: Ranks) -> None:
    """Who made the NaN: this rank's backward pass, or the hook."""
    for facts in four.run(probe_scenarios.diagnoses):
        assert "the hook made NaN or inf of " in facts["nonfinite_result"][0][1]
    healthy, broken = two.run(probe_scenarios.bad_gradient)
    assert healthy == []
    ((kind, message, parameter, seen_by),) = broken
    assert kind == "nonfinite_gradient"
    assert "the gradient of 2.bias had NaN or inf before the hook" in message
    assert (parameter, seen_by) == ("2.bias", 1)


def test_an_average_of_16_bits_has_an_error(two: Ranks) -> None:
    """The one that it has against the average in 64 bits."""
    for found in two.run(probe_scenarios.sixteen_bits):
        assert len(found) == STEPS - FIRST
        for measured, true in found:
            assert true > 1e-3
            assert measured == pytest.approx(true, rel=1e-4)


def test_a_rank_without_data_is_probed_with_the_others(two: Ranks) -> None:
    """Under join() it shadows the same steps and buckets."""
    first, second = two.run(probe_scenarios.joined)
    assert first["probed"] == second["probed"]
    assert len(first["probed"]) == STEPS - FIRST
    assert (first["shadows"], second["shadows"]) == (0, 6)


def test_a_hook_that_fails_while_probed_is_named(two: Ranks) -> None:
    """The probe lets go, and the error is the hook's."""
    for message, anomalies in two.run(probe_scenarios.failing_probed):
        assert "ValueError: late boom" in message
        assert len(anomalies) == 1
        assert "late boom" in anomalies[0]


def test_an_anomaly_is_recorded_logged_or_raised(two: Ranks) -> None:
    """As ``on_anomaly`` says; out of the next backward pass, with the record's message."""
    for facts in two.run(probe_scenarios.alarms):
        raised, logged, recorded, still = facts["record"]
        assert (raised, logged, recorded, still) == ("nothing", [], ["not_averaged"] * 6, True)
        raised, logged, recorded, still = facts["warn"]
        assert (raised, len(logged), recorded, still) == ("nothing", 6, ["not_averaged"] * 6, True)
        assert logged[0].startswith("not_averaged: hook 'made', bucket 0, step 11: ")
        raised, logged, recorded, still = facts["raise"]
        assert raised.startswith("hook 'made', bucket 0, step 11: the result is 2 times the aver")
        # The third step shows what the first two were.
        assert (len(logged), recorded, still) == (3, ["not_averaged"] * 3, True)


def test_the_residual_of_error_feedback_is_measured(two: Ranks) -> None:
    """Of this PowerSGD and of torch's: the norm of what the state holds after the step."""
    for facts in two.run(probe_scenarios.residuals):
        assert [same for same, _ in facts] == [True, True]
        assert all(norm > 0 for _, norm in facts)
