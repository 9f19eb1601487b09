"""What a hook's time in a step is, and what becomes of one that fails."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from hooktrace.probes import trial_step
from hooktrace.probes.trial import Trial
from hooktrace.probes.trial_step import StepOfTrials
from tests.probes.test_calibration import FakeSink, calls_of


class Named:
    """A candidate of which only the name and the work are known."""

    options = ()

    def __init__(self, label: str) -> None:
        self.label = label

    def working_state(self, group: Any) -> list[int]:
        return []

    def fits(self, dtype: torch.dtype) -> bool:
        return True


def step_of(budget_ns: int, refused: set[str] | None = None) -> StepOfTrials:
    hook: Any = Named("x")
    refused = set() if refused is None else refused
    return StepOfTrials(hook, None, budget_ns, refused, ThreadPoolExecutor(1))


def trials_within(monkeypatch: pytest.MonkeyPatch, budget_ms: float) -> list[tuple[int, int]]:
    """Return (bucket, parameters) of each trial in two buckets of 16, each of 1 ms of work."""

    def tried(candidate: Any, state: Any, part: Any, worker: Any, *, counts: bool) -> Trial:
        work_ns = 62_500 * len(part.parameters())
        return Trial((), work_ns, 0, 0.0, 1.0, 1.0)

    monkeypatch.setattr(trial_step, "run_trial", tried)
    sink: Any = FakeSink()
    step = step_of(int(budget_ms * 1e6))
    calls = calls_of(16, 16)
    for call in calls:
        step.begin(call, sink)
    assert not sink.pushed
    made = [step.finish(call._replace(step=1), sink) for call in calls]
    assert {r.step for r in sink.pushed} == {1}
    assert sum(made) == len(sink.pushed)
    return [(r.bucket, r.count) for r in sink.pushed]


def test_a_hook_has_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes 1 ms here, a trial is expected to take two; one is always made."""
    assert trials_within(monkeypatch, 100) == [(0, 1), (0, 4), (0, 16), (1, 1), (1, 4), (1, 16)]
    assert trials_within(monkeypatch, 8) == [(0, 1), (0, 4), (1, 1), (1, 4)]
    assert trials_within(monkeypatch, 2) == [(0, 1), (0, 4)]  # two sizes, which take longer
    assert trials_within(monkeypatch, 0.1) == [(0, 1)]


def test_the_call_that_counts_is_of_the_next_step_with_the_state_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On gradients that are new, for which the state has something to remember."""
    seen: list[tuple[list[int], bool, float]] = []

    def tried(candidate: Any, state: list[int], part: Any, worker: Any, *, counts: bool) -> Trial:
        part.fill()
        state.append(1)
        seen.append((list(state), counts, float(part.buffer()[0])))
        return Trial((), 1, 0, 0.0, 1.0, 1.0)

    monkeypatch.setattr(trial_step, "run_trial", tried)
    sink: Any = FakeSink()
    step = step_of(int(1e9))
    (call,) = calls_of(1)
    call.bucket.buffer().fill_(3.0)
    step.begin(call, sink)
    call.bucket.buffer().fill_(5.0)
    assert (step.finish(call, sink), step.finish(call, sink)) == (1, 0)
    assert seen == [([1], False, 3.0), ([1, 1], True, 5.0)]


def test_a_hook_that_fails_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not tried again."""

    def broken(*_: object, **__: object) -> Trial:
        raise ValueError("no such gradient")

    monkeypatch.setattr(trial_step, "run_trial", broken)
    refused: set[str] = set()
    sink: Any = FakeSink()
    with caplog.at_level(logging.WARNING, "hooktrace"):
        for call in calls_of(16, 16):
            step = step_of(1, refused)
            step.begin(call, sink)
            assert step.finish(call, sink) == 0
    assert caplog.messages == ["hook x is not tried on net: ValueError: no such gradient"]
    assert refused == {"x"}
