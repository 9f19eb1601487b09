"""Times of a step where a backward pass is more than one model's, on real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import timing_scenarios
from tests.distributed.harness import Ranks


@pytest.mark.slow
def test_what_later_backward_hides_is_not_exposed(two: Ranks) -> None:
    """A trunk's work and a second model's, which go on until all is there; then nothing is left."""
    for steps in two.run(timing_scenarios.backward_goes_on):
        assert {name: len(found) for name, found in steps.items()} == dict.fromkeys(steps, 4)
        for step in (*steps["trunk"], *steps["first"]):
            assert step.done_ns > step.last_ready_ns
            assert step.exposed_ns == 0
        for step in steps["second"]:
            assert step.exposed_ns is not None
            assert step.exposed_ns <= step.done_ns - step.last_ready_ns
        assert any(step.exposed_ns for step in steps["second"])


def test_reentrant_checkpoints_have_their_steps(two: Ranks) -> None:
    """Hooks run in passes inside the pass: each step is there when backward returns, and timed."""
    for steps, seen in two.run(timing_scenarios.reentrant_checkpoints):
        assert seen == [1, 2, 3, 4]
        for step in steps:
            assert step.exposed_ns is not None
            assert step.exposed_ns <= step.done_ns - step.last_ready_ns
