"""ZeRO overlap on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import zero_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.optimizer_runs import STEPS
from tests.versions import ZERO_OVERLAPS_ON_FAKES

pytestmark = pytest.mark.slow


ZERO_ERRORS = {
    "gloo": ("RuntimeError", "gloo backend (torch refuses it too); use NCCL"),
    "no overlap": ("ValueError", "with overlap_with_ddp=True"),
    "groups": ("ValueError", "the ZeroRedundancyOptimizer has 2; make it of ddp.parameters()"),
    "no DDP": ("TypeError", "needs a DistributedDataParallel model, not a Sequential"),
    "no ZeRO": ("TypeError", "not a SGD; for another optimizer use hook_then_optimizer"),
    "no hook": ("TypeError", "needs a hook, a callable that takes (state, bucket), not a int"),
    "traced": ("TypeError", "trace the outermost hook"),
    "channels_last": ("ValueError", "takes contiguous parameters, and one of shape (8, 3, 3, 3)"),
}


@pytest.mark.parametrize("case", ZERO_ERRORS)
def test_zero_is_refused_before_registration(two: Ranks, case: str) -> None:
    """Both hooks name themselves, what is wrong, and the remedy."""
    exception, reason = ZERO_ERRORS[case]
    hook = {"gloo": "fp16_compress_hook", "no hook": "int"}.get(case, "allreduce_hook")
    for facts in two.run(zero_scenarios.zero_errors):
        for factory, (raised, message) in zip(
            ("hook_with_zero_step", "hook_with_zero_step_interleaved"), facts[case], strict=True
        ):
            assert raised == exception
            assert message.startswith(f"{factory}({hook}) ")
            assert reason in message


@pytest.mark.skipif(not ZERO_OVERLAPS_ON_FAKES, reason="this torch lets it on NCCL only")
def test_zero_steps_where_torch_lets_it(two: Ranks) -> None:
    """On a backend that is not refused it trains as a step after backward does, from step 2 on."""
    first, second = two.run(zero_scenarios.zero_alone)
    assert len(first) == len(second) == 8
    for name, found in first.items():
        assert name.startswith("hook_with_zero_step")
        assert found == {
            "named alike": True,
            "first two step nothing": True,
            "same": True,
            "steps recorded": STEPS,
            "pickles": False,
        }
    # torch takes its global rank, 1, for its rank in the group, 0, and would step nothing.
    for exception, message in second.values():
        assert exception == "ValueError"
        assert (
            "ranks 0, 1, ... in order, and that of the ZeroRedundancyOptimizer has [1]" in message
        )
