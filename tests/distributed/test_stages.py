"""Stages that are hooktrace's own, on real gloo ranks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.harness import on
from tests.distributed.models import backward, make_ddp

pytestmark = pytest.mark.slow

STEPS = 24
EVERY = 5


@on(2)
def test_a_checked_step_gives_no_times(rank: int) -> None:
    """Nor does a model's first step; errors are those of checked steps.

    A local trial is a probe too: it runs before the hook, on the thread that computes the
    gradients.  Debug mode looks at every step, so none shows how long training takes without it.
    """
    for name, hook, state, options in (
        ("staged", hooks.allreduce_hook, None, {}),
        ("plain", default_hooks.allreduce_hook, None, {}),
        ("rounds", hooks.powerSGD_hook, hooks.PowerSGDState(None, 1, 2), {}),
        ("local", hooks.fp16_compress_hook, None, {"error": "local"}),
        ("debug", hooks.allreduce_hook, None, {"error_every": 0, "debug": True}),
    ):
        ddp = make_ddp(0.004)
        with Tracer(**{"error_every": EVERY, **options}) as tracer:  # type: ignore[arg-type]
            hooktrace.instrument(ddp, hook, state, tracer=tracer)
            for step in range(STEPS):
                backward(ddp, rank, step)
            steps, buckets = tracer.steps(), tracer.buckets()
            summaries = tracer.summary()
        compared = sorted({b.step for b in buckets if b.error is not None})
        checked = [s.step for s in steps if s.checked]
        counted = [s.step for s in steps if s.counts]
        if name == "debug":
            assert (compared, checked, counted) == ([], list(range(STEPS)), [])
        else:
            assert compared == list(range(EVERY, STEPS, EVERY))
            assert checked == [0, *compared]
        if name not in {"local", "debug"}:
            assert summaries[0].steps == len(counted)
            assert sum(b.error_count for b in summaries[0].buckets) == len(compared)
        assert set(counted).isdisjoint(checked)
        # With a probe in exactly the buckets that are marked; turns are stamped, and no queue.
        assert all(map(_is_whole, buckets))
        assert {b.checked for b in buckets if b.stage_ns("check")} == {True}
        assert {b.checked for b in buckets if not b.stage_ns("check")} <= {False}
        turns = [s for b in buckets for s in b.stages if s.name == "serialization_wait"]
        assert any(s.end_ns > s.start_ns for s in turns) == (name == "rounds")
        assert not any(s.derived for s in turns)


def _is_whole(bucket: hooktrace.BucketRecord) -> bool:
    """Whether a bucket's stages follow each other from ready to done."""
    ends = [(s.start_ns, s.end_ns) for s in bucket.stages]
    follow = all(one[1] == other[0] for one, other in pairwise(ends))
    return follow and (ends[0][0], ends[-1][1]) == (bucket.ready_ns, bucket.done_ns)
