"""What a hook's time in a step is, and what becomes of one that fails."""

from __future__ import annotations

import logging
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

    def fits(self, dtype: torch.dtype) -> bool:
        return True


def trials_within(monkeypatch: pytest.MonkeyPatch, budget_ms: float) -> list[tuple[int, int]]:
    """Return (bucket, parameters) of each trial in two buckets of 16, each of 1 ms of work."""

    def tried(candidate: Any, group: Any, part: Any) -> Trial:
        work_ns = 62_500 * len(part.parameters())
        return Trial((), work_ns, 0, 0.0, 1.0, 1.0)

    monkeypatch.setattr(trial_step, "run_trial", tried)
    sink: Any = FakeSink()
    step = StepOfTrials(Named("x"), None, int(budget_ms * 1e6), set())  # type: ignore[arg-type]
    for call in calls_of(16, 16):
        step.bucket(call, sink)
    return [(r.bucket, r.count) for r in sink.pushed]


def test_a_hook_has_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial takes 1 ms here, and is expected to take 2.5 of its work; one is always made."""
    assert trials_within(monkeypatch, 100) == [(0, 1), (0, 4), (0, 16), (1, 1), (1, 4), (1, 16)]
    assert trials_within(monkeypatch, 4) == [(0, 1), (0, 4), (1, 1), (1, 4)]
    assert trials_within(monkeypatch, 1) == [(0, 1), (0, 4)]  # two sizes, which take longer
    assert trials_within(monkeypatch, 0.1) == [(0, 1)]


def test_a_hook_that_fails_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not tried again."""

    def broken(*_: object) -> Trial:
        raise ValueError("no such gradient")

    monkeypatch.setattr(trial_step, "run_trial", broken)
    refused: set[str] = set()
    sink: Any = FakeSink()
    with caplog.at_level(logging.WARNING, "hooktrace"):
        for call in calls_of(16, 16):
            assert StepOfTrials(Named("x"), None, 1, refused).bucket(call, sink) == 0  # type: ignore[arg-type]
    assert caplog.messages == ["hook x is not tried on net: ValueError: no such gradient"]
    assert refused == {"x"}
