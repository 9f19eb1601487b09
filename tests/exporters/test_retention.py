"""Which steps are kept in detail: each rule alone, and what bounds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.exporters.retention import DetailPolicy, Retention
from hooktrace.records import CompletedStep
from tests.exporters import records_sample as sample

NOTHING: dict[str, Any] = {"first_steps": 0, "window_steps": 0, "extra_share": 1.0}
"""Rules by which only what is slow or went wrong is kept."""

PERIOD_NS = sample.STEP_NS
EXPOSED_NS = 2_000_000


def step(number: int, **changes: Any) -> CompletedStep:
    """Return a sample step with some fields changed; its period is 10 ms, 2 of them exposed."""
    record, buckets = sample.make_step(number)
    return replace(record, **changes), buckets


def choices(policy: DetailPolicy, steps: Iterable[CompletedStep]) -> dict[int, list[int]]:
    """Return the steps that are kept, each with what was kept when it came."""
    chosen = {record.step: policy.choose((record, buckets)) for record, buckets in steps}
    return {number: [step.step for step, _ in kept] for number, kept in chosen.items() if kept}


def kept(steps: Iterable[CompletedStep], **rules: Any) -> list[int]:
    return list(choices(DetailPolicy(Retention(**rules)), steps))


def test_a_short_job_is_kept_whole() -> None:
    """By the defaults a job of 1,000 steps, beside the rebuild before them."""
    steps = [step(i, rebuild=min(i, 1)) for i in range(1100)]
    assert kept(steps) == [*range(1001), *range(1001, 1020)]


def test_the_first_steps_of_each_rebuild_of_each_model() -> None:
    """Of the first sixteen: a job that rebuilds its buckets all the time has no first steps."""
    rules = {**NOTHING, "first_steps": 2}
    steps = [step(i, rebuild=i // 5) for i in range(100)]
    assert kept(steps, **rules) == [i for i in range(80) if i % 5 < 2]
    policy = DetailPolicy(Retention(**rules))
    for model in ("a", "b"):
        assert list(choices(policy, [step(i, model=model) for i in range(9)])) == [0, 1]


def test_each_step_says_why_it_was_kept() -> None:
    """By number before all else, as such steps stand for others; one before a slow one: nothing."""
    rules = {**NOTHING, "first_steps": 2, "window_steps": 1, "window_every": 40}
    policy = DetailPolicy(Retention(**rules))
    policy.ask("net", 5, 1)
    policy.expect([sample.make_anomaly(7), replace(sample.make_anomaly(9), model="another")])
    steps = [step(i) for i in range(90)]
    steps[60] = step(60, previous_period_ns=10 * sample.STEP_NS)
    found = [one for completed in steps for one, _ in policy.choose(completed)]
    assert [(one.step, one.kept_for) for one in found] == [
        *[(0, "window"), (1, "first"), (5, "asked"), (7, "wrong"), (40, "window")],
        *[(59, None), (60, "slow"), (80, "window")],
    ]


USUAL = [step(i) for i in range(1, 100)]
RARELY_EXPOSED = [step(i, exposed_ns=300_000) for i in range(1, 100)]
SLOW = {"previous_period_ns": 9 * PERIOD_NS}


@pytest.mark.parametrize(
    ("before", "changes", "expected"),
    [
        # A period is that of the step before.
        (USUAL, {"previous_period_ns": PERIOD_NS * 3 // 2 + 1}, [-1, 0]),
        (USUAL, {"previous_period_ns": PERIOD_NS * 3 // 2}, None),
        (USUAL, {"exposed_ns": EXPOSED_NS * 3 // 2 + 1}, [0]),
        (USUAL, {"exposed_ns": EXPOSED_NS * 3 // 2}, None),
        (USUAL, {"previous_period_ns": None, "exposed_ns": None}, None),
        (USUAL, {**SLOW, "join_dummy": True}, None),
        # Three times as much of nearly nothing is nearly nothing: less than 10 % of a period.
        (RARELY_EXPOSED, {"exposed_ns": 1_000_000}, None),
        (RARELY_EXPOSED, {"exposed_ns": 1_300_001}, [0]),
        # Before 32 steps that count there is no telling what is usual.
        (USUAL[:31], SLOW, None),
        (USUAL[:32], SLOW, [-1, 0]),
        ([step(i, warmup=True) for i in range(1, 33)], SLOW, None),
        # What says something.
        (USUAL[:4], {"complete": False}, [0]),
    ],
)
def test_steps_that_are_kept_for_what_they_are(
    before: list[CompletedStep], changes: dict[str, Any], expected: list[int] | None
) -> None:
    """Slow ones are longer than half as much again; ``expected``: counted from the last step."""
    last = len(before) + 1
    found = choices(DetailPolicy(Retention(**NOTHING)), [*before, step(last, **changes)])
    assert found == ({} if expected is None else {last: [last + i for i in expected]})


def test_checks_and_exceptions_are_kept() -> None:
    record, (first, *others) = step(7)
    failed = record, (replace(first, exception="ValueError: no"), *others)
    steps = [*USUAL[:4], sample.checked(step(5)), step(6), failed]
    assert kept(steps, **NOTHING) == [5, 7]


def test_what_is_usual_follows_the_job() -> None:
    """After 128 steps at a new pace that pace is the usual one."""
    steps = [step(i) for i in range(1, 200)]
    steps += [step(i, previous_period_ns=2 * PERIOD_NS) for i in range(200, 400)]
    found = kept(steps, **NOTHING)
    assert found == list(range(200, 264))  # until it is the median of the last 128
    assert kept([*steps, step(400, previous_period_ns=4 * PERIOD_NS)], **NOTHING) == [*found, 400]


@pytest.mark.parametrize("changes", [{"previous_period_ns": 2 * PERIOD_NS}, {"complete": False}])
def test_a_job_in_which_much_goes_wrong_keeps_a_share(changes: dict[str, Any]) -> None:
    """Two in five are slow, or all incomplete: fifty at once, then one in fifty, others counted."""
    policy = DetailPolicy(Retention(**{**NOTHING, "extra_share": 0.02}))
    is_slow = "complete" not in changes
    steps = [step(i, **(changes if i % 5 >= 3 or not is_slow else {})) for i in range(5000)]
    found = choices(policy, steps)
    assert len(found) == pytest.approx(50 + 5000 / 50, abs=5)
    if is_slow:
        left = policy.left_out["slow_steps"]
        assert len(found) + left == pytest.approx(5000 * 2 / 5, abs=50)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"first_steps": -1}, "first_steps is -1; pass a whole number of at least 0"),
        ({"window_steps": 0.5}, "window_steps is 0.5; pass a whole number of at least 0"),
        ({"window_every": 0}, "window_every is 0; pass a whole number of at least 1"),
        ({"slow_factor": float("nan")}, "slow_factor is nan; pass more than 1"),
        ({"extra_share": 1.5}, "extra_share is 1.5; pass a share from 0 to 1"),
    ],
)
def test_rules_out_of_range(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Retention(**rules)
