"""The local error, on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import local_error_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.test_debug import BUCKETS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("hook", local_error_scenarios.EXPECTED)
def test_the_local_error_is_that_of_compress_and_decompress(two: Ranks, hook: str) -> None:
    """As computed from the rank's own gradients; nothing was sent for it."""
    for facts in two.run(local_error_scenarios.known_local_errors):
        rows = facts[hook]
        assert [step for step, *_ in rows] == list(range(1, local_error_scenarios.STEPS))
        assert len({bucket for _, bucket, *_ in rows}) == BUCKETS
        for _, _, scope, measured, computed in rows:
            assert scope == "local"
            assert measured == pytest.approx(computed, rel=1e-6)
            assert (measured == 0) == (hook in ("allreduce", "noop"))


def test_local_probes_leave_the_hook_as_it_was(two: Ranks) -> None:
    """Residuals, warm starts and random numbers: the gradients are the same bit for bit."""
    for facts in two.run(local_error_scenarios.left_alone):
        assert facts == dict.fromkeys(facts, True)
        assert len(facts) == 9


def test_a_local_error_that_cannot_be_known_is_said_to_be_so(two: Ranks) -> None:
    """Once, with the reason, and training goes on."""
    for facts in two.run(local_error_scenarios.not_measurable):
        for name, reason in (("opaque", "is opaque"), ("gossip", "without sending")):
            lines, unmeasured, steps = facts[name]
            (line,) = [line for line in lines if line.startswith("local error of ")]
            assert reason in line
            assert unmeasured
            assert steps == local_error_scenarios.STEPS


def test_one_rank_may_measure_its_local_error_alone(two: Ranks) -> None:
    """No other rank is asked."""
    assert two.run(local_error_scenarios.alone) == [local_error_scenarios.STEPS - 1, 0]
