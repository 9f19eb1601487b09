"""Collectives of the job that are no bucket's, on real gloo ranks (torch >= 2.14).

The oracle is the script: it says what it has issued in each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import Tracer, hooks, instrument
from hooktrace.records import OtherCollectives
from hooktrace.staging import other_collectives
from hooktrace.staging.groups import known_groups
from hooktrace.tracing import hookless
from tests.distributed.harness import on
from tests.distributed.models import anomalies, backward, gradients, make_ddp
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


def _told(tracer: Tracer, model: str | None = None) -> dict[int, OtherCollectives]:
    found = tracer.records(OtherCollectives)
    return {one.step: one for one in found if model in (None, one.model)}


def _of(record: OtherCollectives, of_ddp: bool = False) -> Counter[Issued]:
    own = [one for one in record.collectives if one.of_ddp == of_ddp]
    return Counter((one.name, one.wire_bytes or 0) for one in own)


HOW: dict[str, Callable[..., Any] | None] = {
    "hookless": None,
    "plain": default_hooks.allreduce_hook,
}


@on(2)
def test_what_a_script_issues(rank: int) -> None:
    """All of it, of sampled steps alone, with times; and no bucket."""
    for how, hook in HOW.items():
        ddp = make_ddp(CAP_MB)
        with Tracer(error_every=EVERY) as tracer:
            instrument(ddp, hook, tracer=tracer)
            assert hookless.is_watched(ddp) == (how == "hookless")
            script = Script(ddp, rank)
            for number in range(STEPS):
                script.step(number)
            told, steps = _told(tracer), {one.step: one for one in tracer.steps()}
            losses = tracer.losses()
        assert list(told) == SAMPLED, how
        for number, record in told.items():
            assert _of(record) == script.issued[number], (how, number)
            assert (record.wire_bytes, record.count) == (32 + 12 + 40, 4)
            assert record.time_ns == steps[number].first_ready_ns
            assert record.until_ns == steps[number + 1].first_ready_ns
            for one in record.collectives:
                assert record.time_ns < one.issued_ns < (one.done_ns or 0) < record.until_ns
                assert one.where.startswith(FILE), one
            assert {one.thread for one in record.collectives} == {"MainThread"}
            # Without a hook the model's own group alone is watched; tests before left others.
            others = len(known_groups()) - 1 if how == "hookless" else 0
            assert record.more == 0
            assert record.unseen_groups <= others
        assert losses == {}
        assert anomalies(tracer) == []
        assert other_collectives.window is None


@on(2)
def test_training_stays_as_it_is(rank: int) -> None:
    """Gradients are DDP's own, bit for bit, where each step is sampled."""
    seen = []
    for traced in (False, True):
        ddp = make_ddp(CAP_MB)
        script = Script(ddp, rank)
        with Tracer(error_every=1) as tracer:
            if traced:
                instrument(ddp, tracer=tracer)
            for number in range(5):
                script.step(number)
            told = _told(tracer)
        assert list(told) == ([2, 3] if traced else [])
        seen.append(gradients(ddp))
    assert torch.equal(*seen)


@on(2)
def test_two_models(rank: int) -> None:
    """Neither one's buckets are the other's other collectives; what is seen is the process's."""
    for hook in HOW.values():
        own = [make_ddp(CAP_MB), make_ddp(CAP_MB)]
        with Tracer(error_every=EVERY) as tracer:
            instrument(own[0], hook, tracer=tracer)
            instrument(own[1], hooks.allreduce_hook, tracer=tracer)
            another = make_ddp(CAP_MB)
            instrument(another, tracer=tracer)
            scripts = [Script(ddp, rank) for ddp in (*own, another)]
            for number in range(STEPS):
                for script in scripts:
                    script.step(number)
            told = _told(tracer)
        assert list(told) == SAMPLED
        assert len({one.model for one in told.values()}) == 1
        for number, record in told.items():
            whole: Counter[Issued] = sum((s.issued[number] for s in scripts), Counter())
            assert _of(record) == whole


@on(2)
def test_no_sync_and_buffers(rank: int) -> None:
    """A step without a bucket is a part of the one before; DDP's own broadcasts are DDP's."""
    ddp = make_ddp(CAP_MB)
    ddp.module.register_buffer("mean", torch.zeros(16))
    ddp = DistributedDataParallel(ddp.module, bucket_cap_mb=CAP_MB)
    with Tracer(error_every=EVERY) as tracer:
        instrument(ddp, tracer=tracer)
        script = Script(ddp, rank)
        for number in range(STEPS):
            script.step(number)
            with ddp.no_sync():
                backward(ddp, rank, number + 100)
        told = _told(tracer)
    for number, record in told.items():
        # The gradient hook is called in both passes; of the two forward passes DDP has buffers for
        # that of the synchronised one.
        assert _of(record) == script.issued[number]
        assert set(_of(record, of_ddp=True)) == {("broadcast", 64)}
        assert record.ddp_bytes == 64 * sum(_of(record, of_ddp=True).values()) > 0


@on(2)
def test_more_than_are_listed(rank: int) -> None:
    """They are counted, with their bytes."""
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=EVERY) as tracer:
        instrument(ddp, tracer=tracer)
        for number in range(4):
            backward(ddp, rank, number)
            for _ in range(other_collectives.MOST + 5):
                dist.all_reduce(torch.ones(1))
        (record,) = _told(tracer).values()
    assert len(record.collectives) == other_collectives.MOST
    assert (record.more, record.more_bytes) == (5, 20)


@on(2)
def test_groups_that_are_not_seen(rank: int) -> None:
    """A model without a hook has its own group seen, and says how many others there are."""
    group = dist.new_group([0, 1])
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=EVERY) as tracer:
        instrument(ddp, tracer=tracer)
        for number in range(4):
            backward(ddp, rank, number)
            dist.all_reduce(torch.ones(1), group=group)
        (record,) = _told(tracer).values()
    dist.destroy_process_group(group)
    assert (record.count, record.unseen_groups) == (0, 1)
