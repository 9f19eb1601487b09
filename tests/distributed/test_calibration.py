"""A calibration of a real job on 2 gloo ranks: training is as without it, its times are true."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hooktrace.analysis.whatif.hook_rules import rule_of
from hooktrace.analysis.whatif.own_run import parameters_in
from hooktrace.hooks.candidates import candidates
from tests.distributed import calibration_scenarios as scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow

COMPUTED = [*range(21, 25), *range(33, 37), *range(45, 49)]
LABELS = [one.label for one in candidates()]


@pytest.mark.parametrize("hook", scenarios.HOOKS)
def test_training_is_bit_identical(two: Ranks, hook: str) -> None:
    """With parameters equal after each step; all hooks were tried, and nothing is left behind."""
    for facts in two.run(scenarios.untouched):
        assert facts[hook] == (True, True, 0)


@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.recorded, scenarios.in_micro_steps, scenarios.with_a_static_graph,
        scenarios.with_a_compiled_optimizer,
    ],
)  # fmt: skip
def test_a_gradient_s_time_is_before_ddp_knows_of_it(two: Ranks, scenario: object) -> None:
    """The bucket's hook is called right after its last one; computing waits while it is."""
    for facts in two.run(scenario):  # type: ignore[arg-type]
        buckets = {(b.step, b.bucket): b for b in facts["buckets"]}
        layout = facts["layout"].buckets
        assert [c.step for c in facts["computes"]] == COMPUTED
        for compute in facts["computes"]:
            ready = dict(zip(compute.parameters, compute.ready_ns, strict=True))
            assert len(ready) == 16
            assert list(compute.ready_ns) == sorted(compute.ready_ns)
            called = [buckets[compute.step, b.bucket] for b in layout]
            last = [max(ready[name] for name, _ in b.parameters) for b in layout]
            assert all(ns <= b.ready_ns for ns, b in zip(last, called, strict=True))
            assert all(b.launched_ns <= ns for b, ns in zip(called, last[1:], strict=False))
            assert min(compute.forward_ns, compute.optimizer_ns, compute.thread_ns) > 0
            assert compute.thread_ns < compute.processor_ns


def test_all_of_it_is_a_probe_and_nothing_after_it_is(two: Ranks) -> None:
    """No statistic counts its steps; after it the sampler is asked nothing."""
    for facts in two.run(scenarios.recorded):
        assert [s.step for s in facts["steps"] if s.probed] == [0, *range(20, 51)]
        assert [b.step for b in facts["buckets"] if b.probed and b.step == 50] == [50]


def test_trials_are_of_what_the_hooks_send(two: Ranks) -> None:
    """The same collectives and bytes as in real steps; one hook a step, smaller parts first."""
    for facts, real in zip(
        two.run(scenarios.recorded), two.run(scenarios.sent_for_real), strict=True
    ):
        trials, layout = facts["trials"], facts["layout"].buckets
        steps = {t.step: t.hook for t in trials}
        assert list(steps) == [*range(26, 32), *range(38, 44)]
        assert list(steps.values()) == LABELS
        assert all(t.hook == steps[t.step] for t in trials)
        assert all(a.numel <= b.numel for a, b in pairwise(trials) if _beside(a, b))
        last = [
            t
            for t in trials
            if (t.bucket, t.count) == (len(layout) - 1, len(layout[-1].parameters))
        ]
        assert [t.hook for t in last] == LABELS
        for trial in last:
            assert [(r.collective, r.wire_bytes) for r in trial.rounds] == real[trial.hook]
            assert min(trial.after_ns, *(r.before_ns for r in trial.rounds)) > 0


def test_bytes_follow_from_shapes(two: Ranks) -> None:
    """Of each hook and each part of a bucket: what the rules say is what was tried, exactly."""
    for facts in two.run(scenarios.recorded):
        whole = {b.bucket: parameters_in(b) for b in facts["layout"].buckets}
        for trial in facts["trials"]:
            part = whole[trial.bucket][trial.first : trial.first + trial.count]
            sent = rule_of(trial.hook).sends(part, dict(trial.options))  # type: ignore[union-attr]
            told = [(one.collective, one.wire_bytes) for one in sent]
            assert told == [(r.collective, r.wire_bytes) for r in trial.rounds], trial.hook


def test_the_local_error_is_of_the_order_that_each_hook_has(two: Ranks) -> None:
    """None, that of a cast, of 255 levels, of a product of low rank."""
    bounds = {"allreduce": 0, "fp16": 1e-3, "bf16": 1e-2, "quantize-per-channel": 0.1}
    for facts in two.run(scenarios.recorded):
        errors = {t.hook: t.relative_l2 for t in facts["trials"]}
        assert all(errors[hook] <= bound for hook, bound in bounds.items())
        assert errors["allreduce"] < errors["fp16"] < errors["bf16"] < errors["powersgd"]


def _beside(one: object, other: object) -> bool:
    return (one.step, one.bucket) == (other.step, other.bucket)  # type: ignore[attr-defined]
