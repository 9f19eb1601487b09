"""No hook hangs, whatever the order in which ranks come to its collectives."""

from __future__ import annotations

import gc
import hashlib
import random
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hooktrace import hooks
from hooktrace.staging.composition import steps_of
from tests.distributed.comparison import Given, Hook, around, drawn
from tests.distributed.harness import on, scenario
from tests.distributed.models import of_all_ranks
from tests.distributed.test_powersgd import Case

STEPS = 50

PLAIN: dict[str, Hook] = {
    "allreduce": hooks.allreduce_hook,
    "quantised channels": hooks.quantization_perchannel_hook.bind(bucket_size=128),
    "nothing": hooks.noop_hook,
}

WITH_STATE: dict[str, Hook] = {
    "powerSGD": hooks.powerSGD_hook,
    "fp16(powerSGD)": hooks.fp16_compress_wrapper(hooks.powerSGD_hook),
}


def delayed(hook: Hook, rank: int) -> Hook:
    """Return the hook with naps before and after each collective, most short, up to 2 ms."""
    chance = random.Random(rank)

    def steps(state: Any, bucket: Any) -> Iterator[Any]:
        generator = steps_of(hook, state, bucket)
        value = None
        while True:
            time.sleep(chance.random() ** 4 * 0.002)
            try:
                operation = generator.send(value)
            except StopIteration as stop:
                return stop.value
            value = yield operation

    return around(steps, hook)


@on(4)
@scenario(deadline_s=240)
def test_no_hook_hangs_or_aborts(rank: int) -> None:
    """50 steps with random delays: finite, and the same bits on all replicas."""
    shapes = ((12, 20), (20,)) * 4  # a bucket each: as many wait as gloo's two workers serve
    pool = [drawn(rank, step, shapes) for step in range(7)]
    for name, hook in (PLAIN | WITH_STATE).items():
        state = hooks.PowerSGDState(**Case(ratio=0.5).options()) if name in WITH_STATE else None
        ddp = DistributedDataParallel(Given(shapes), bucket_cap_mb=900 / 2**20)
        ddp.register_comm_hook(state, delayed(hook, rank))
        digest = hashlib.sha256()
        for step in range(STEPS):
            ddp.zero_grad()
            ddp(pool[step % len(pool)]).backward()
            flat = torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None])
            assert flat.isfinite().all(), name
            digest.update(flat.numpy().tobytes())
        del ddp
        gc.collect()
        digests = set(of_all_ranks(digest.hexdigest()))
        assert len(digests) == (4 if name == "nothing" else 1), name
