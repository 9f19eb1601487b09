"""Collectives of the job that are no bucket's, on real gloo ranks (torch >= 2.14).

The oracle is the script: it says what it has issued in each step.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import Tracer, instrument
from hooktrace.probes.other_sampler import MOST_LISTED
from hooktrace.records import OtherCollectives
from hooktrace.staging import group_hooks
from hooktrace.tracing import hookless
from tests.distributed.harness import on
from tests.distributed.models import anomalies, backward, make_ddp, make_model
from tests.versions import HOOKS_GROUPS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HOOKS_GROUPS, reason="this torch's process groups take no hooks"),
]

STEPS, EVERY = 11, 4
SAMPLED = [2, 4, 8]
"""Step 2, and each fourth one that another follows."""
CAP_MB = 0.004
FILE = "test_other_collectives.py"

Issued = tuple[str, int]
"""Kind and payload."""


class Script:
    """A training script with collectives of its own, which it counts.

    In each backward pass one of a gradient hook, after it the averaged loss, a barrier.
    """

    def __init__(self, ddp: DistributedDataParallel, rank: int) -> None:
        self.ddp = ddp
        self.rank = rank
        self.issued: list[Counter[Issued]] = []
        first = next(iter(ddp.module.children()))
        first.weight.register_post_accumulate_grad_hook(self._in_backward)  # type: ignore[union-attr]

    def note(self, kind: str, size: int) -> None:
        self.issued[-1][kind, size] += 1

    def _in_backward(self, parameter: torch.Tensor) -> None:
        if self.issued:  # before the first bucket of a step it is none of that step's
            dist.all_reduce(torch.ones(8))
            self.note("all_reduce", 32)

    def step(self, number: int) -> None:
        self.ddp.zero_grad()
        self.issued.append(Counter())
        backward(self.ddp, self.rank, number)
        dist.all_reduce(torch.ones(3))
        self.note("all_reduce", 12)
        gathered = [torch.ones(5, dtype=torch.float64) for _ in range(2)]
        dist.all_gather(gathered, gathered[0].clone())
        self.note("all_gather", 40)
        dist.barrier()
        self.note("barrier", 0)


def _told(tracer: Tracer) -> dict[int, OtherCollectives]:
    return {one.step: one for one in tracer.records(OtherCollectives)}


def _of(record: OtherCollectives, of_ddp: bool = False) -> Counter[Issued]:
    own = [one for one in record.collectives if one.of_ddp == of_ddp]
    return Counter((one.name, one.wire_bytes or 0) for one in own)


@on(2)
def test_what_a_script_issues(rank: int) -> None:
    """All of it, of sampled steps alone, with times; no bucket, and DDP's broadcasts are DDP's."""
    for hook in (None, default_hooks.allreduce_hook):
        module = make_model()
        module.register_buffer("mean", torch.zeros(16))
        ddp = DistributedDataParallel(module, bucket_cap_mb=CAP_MB)
        with Tracer(error_every=EVERY) as tracer:
            instrument(ddp, hook, tracer=tracer)
            assert hookless.is_watched(ddp) == (hook is None)
            script = Script(ddp, rank)
            for number in range(STEPS):
                script.step(number)
            told, steps = _told(tracer), {one.step: one for one in tracer.steps()}
            losses = tracer.losses()
        assert list(told) == SAMPLED, hook
        for number, record in told.items():
            assert _of(record) == script.issued[number], (hook, number)
            assert set(_of(record, of_ddp=True)) == {("broadcast", 64)}
            assert record.time_ns == steps[number].first_ready_ns
            assert record.until_ns == steps[number + 1].first_ready_ns
            for one in record.collectives:
                assert record.time_ns < one.issued_ns < (one.done_ns or 0) < record.until_ns
                assert one.of_ddp or one.where.startswith(FILE), one
            assert {one.thread for one in record.collectives} == {"MainThread"}
            assert record.more == 0
        assert losses == {}
        assert anomalies(tracer) == []
        assert group_hooks.window is None


@on(2)
def test_what_is_not_listed(rank: int) -> None:
    """More than are listed are counted, with their bytes, and so are groups that nobody watches."""
    group = dist.new_group([0, 1])
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=EVERY) as tracer:
        instrument(ddp, tracer=tracer)  # its own group alone is watched, since it has no hook
        for number in range(4):
            backward(ddp, rank, number)
            dist.all_reduce(torch.ones(1), group=group)
            for _ in range(MOST_LISTED + 5):
                dist.all_reduce(torch.ones(1))
        (record,) = _told(tracer).values()
    dist.destroy_process_group(group)
    assert (len(record.collectives), record.more) == (MOST_LISTED, 5)
    assert (record.more_bytes, record.unseen_groups) == (20, 1)
