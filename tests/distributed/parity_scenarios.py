"""What the ranks do in ``test_parity.py`` with all hooks: mutants of them, and random delays."""

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
from tests.distributed import mutants
from tests.distributed.batched_power_scenarios import compare_batched
from tests.distributed.comparison import Given, Hook, Run, around, difference, drawn
from tests.distributed.exact_scenarios import default_pairs, gather_cases
from tests.distributed.harness import scenario
from tests.distributed.power_pairs import FACTORS, Case, compare


def _family(name: str, rank: int) -> float:
    """Return a comparison's difference over its tolerance; over eps where it must be exact.

    Of PowerSGD the smallest over the dtypes: each must notice.
    """
    if name == "power":
        dtypes = FACTORS[-1]
        return min(compare(Case(dtype=d), rank, steps=5, taught=True)["gradients"] for d in dtypes)
    if name == "batched":
        found = compare_batched(Case(), rank, steps=5, taught=True)
        return max(found["gradients"], found["residual"])
    eps = torch.finfo(torch.float32).eps
    worst = 0.0
    if name == "default":
        for ours, theirs in default_pairs().values():
            given = drawn(rank, 0)
            worst = max(worst, difference(Run(ours).step(given), Run(theirs).step(given)) / eps)
    else:
        for case, (hook, formula) in gather_cases().items():
            if case.startswith(name):
                run = Run(hook)
                averaged = run.step(drawn(rank, 0))
                worst = max(worst, difference(averaged, run.expected(formula)) / eps)
    return worst


@scenario(deadline_s=240)
def mutants_noticed(rank: int) -> dict[str, float]:
    """Return by how much each mutant is over the tolerance, and each comparison without one."""
    facts = {}
    for name in sorted({mutant.family for mutant in mutants.MUTANTS.values()}):
        facts[f"no mutant: {name}"] = _family(name, rank)
    for name, mutant in mutants.MUTANTS.items():
        with mutant.applied():
            facts[name] = _family(mutant.family, rank)
    return facts


# --- stress ---------------------------------------------------------------------------------------


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


@scenario(deadline_s=240)
def stress(rank: int, steps: int = 100) -> dict[str, tuple[bool, str]]:
    """Run every hook with random delays; return (all finite, digest of all gradients)."""
    power_options = Case(ratio=0.5).options()
    channels = hooks.quantization_perchannel_hook.bind(bucket_size=128)
    kinds: dict[str, tuple[Hook, bool]] = {
        "allreduce": (hooks.allreduce_hook, False),
        "fp16": (hooks.fp16_compress_hook, False),
        "bf16": (hooks.bf16_compress_hook, False),
        "powerSGD": (hooks.powerSGD_hook, True),
        "batched powerSGD": (hooks.batched_powerSGD_hook, True),
        "quantised tensor": (hooks.quantization_pertensor_hook, False),
        "quantised channels": (channels, False),
        "gathered": (hooks.allgather_then_aggregate_hook, False),
        "nothing": (hooks.noop_hook, False),
        "fp16(powerSGD)": (hooks.fp16_compress_wrapper(hooks.powerSGD_hook), True),
        "bf16(batched powerSGD)": (
            hooks.bf16_compress_wrapper(hooks.batched_powerSGD_hook),
            True,
        ),
        "bf16(quantised channels)": (hooks.bf16_compress_wrapper(channels), False),
        "fp16(gathered)": (
            hooks.fp16_compress_wrapper(hooks.allgather_then_aggregate_hook),
            False,
        ),
    }
    facts = {}
    shapes = ((12, 20), (20,)) * 4  # a bucket each: as many wait as gloo's two workers serve
    pool = [drawn(rank, step, shapes) for step in range(7)]
    for name, (hook, has_state) in kinds.items():
        state = hooks.PowerSGDState(**power_options) if has_state else None
        ddp = DistributedDataParallel(Given(shapes), bucket_cap_mb=900 / 2**20)
        ddp.register_comm_hook(state, delayed(hook, rank))
        finite, digest = True, hashlib.sha256()
        for step in range(steps):
            ddp.zero_grad()
            ddp(pool[step % len(pool)]).backward()
            flat = torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None])
            finite = finite and bool(flat.isfinite().all())
            digest.update(flat.numpy().tobytes())
        facts[name] = (finite, digest.hexdigest())
        del ddp
        gc.collect()
    return facts
