"""What tracing adds to a sharded model (FSDP2): to a unit's collective, and to a whole step.

*A unit's collective*, one process: models alike of 40 units, whose collectives go to torch's fake
process group of two ranks and send nothing, have one step in turns, round by round.  A sample is
the difference of two of them in a round, processor time of the training thread in forward and
backward, over the step's 120 collectives.  The drain sleeps, and is called now and then.

*A whole step*, two gloo ranks: two models alike, each layer a unit, take turns in blocks of steps;
one is traced, with all exporters, and one is as ``fully_shard`` made it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hooktrace.commands.bench.harness import in_turns
from hooktrace.commands.bench.table import Row
from hooktrace.fsdp.trace import trace
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.tracer import Tracer

from .harness import (
    LAYERS,
    WIDTH,
    Block,
    blocks_in_turns,
    otlp_sink,
    tracer_with_all_exporters,
    warm,
    whole_step_rows,
)

UNITS = 40
COLLECTIVES = 3 * UNITS
"""Of a step: each unit is gathered twice and reduced once."""

_SIDE = 64
_ROWS = 8
_WARMUP_ROUNDS = 20
_ROUNDS_A_DRAIN = 8
_ASLEEP_S = 3600.0
_BUDGET_US = 12.0


def sharded(*, quick: bool) -> Iterator[Row]:
    """Yield what a unit's collective costs more, then the ratio of whole steps."""
    (costs,) = run_ranks(1, _unit_steps, 100 if quick else 600)
    for what, side, budget in (
        ("a unit's collective, traced - untraced", "traced", _BUDGET_US),
        ("the same, traced and paused - untraced", "paused", None),
    ):
        pairs = zip(costs[side], costs["plain"], strict=True)
        added = [(more - less) / COLLECTIVES / 1e3 for more, less in pairs]
        yield Row(f"FSDP2: {what}", added, "µs/unit", budget=budget)
    with otlp_sink():
        rounds, _ = run_ranks(2, _whole_steps, 45.0 if quick else 240.0)
    yield from whole_step_rows("FSDP2: a whole step, traced / untraced", rounds)


def _unit_steps(rounds: int) -> dict[str, list[int]]:
    """Return the processor time of the training thread in each step, ns, by side."""
    dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=2)
    sides = {name: _stack(_SIDE, UNITS) for name in ("plain", "traced", "paused")}
    with _tracer() as tracer, _tracer() as paused:
        trace(sides["traced"], tracer=tracer)
        trace(sides["paused"], tracer=paused)
        turns = in_turns([partial(_unit_step, model) for model in sides.values()])
        costs: list[list[int]] = []
        while len(costs) < _WARMUP_ROUNDS + rounds:
            costs += islice(turns, _ROUNDS_A_DRAIN)
            paused.recording = False
            tracer.flush()
        _check(tracer, COLLECTIVES)
    return dict(zip(sides, map(list, zip(*costs[_WARMUP_ROUNDS:], strict=True)), strict=True))


def _tracer() -> Tracer:
    return Tracer(error_every=0, channel=False, interval_s=_ASLEEP_S, run_id="bench")


def _stack(width: int, layers: int) -> nn.Module:
    """Return a stack of layers without bias, each a unit; the root has nothing of its own."""
    torch.manual_seed(0)
    stack = [nn.Linear(width, width, bias=False) for _ in range(layers)]
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in stack:
        fully_shard(layer, mesh=mesh)
    model = nn.Sequential(*stack)
    fully_shard(model, mesh=mesh)
    return model


def _unit_step(model: nn.Module) -> int:
    data = torch.ones(_ROWS, _SIDE)
    began = time.thread_time_ns()
    model(data).sum().backward()
    took = time.thread_time_ns() - began
    model.zero_grad()
    return took


def _check(tracer: Tracer, collectives: int) -> None:
    last = tracer.steps()[-1]
    if last.bucket_count != collectives or tracer.losses():
        raise RuntimeError(
            f"of a step with {collectives} collectives {last.bucket_count} were recorded, and "
            f"the tracer lost {tracer.losses()}"
        )


def _whole_steps(seconds: float) -> list[list[Block]]:
    """Return blocks of a traced model, and of one that is not."""
    with tracer_with_all_exporters() as tracer:
        ours, plain = _stack(WIDTH, LAYERS), _stack(WIDTH, LAYERS)
        trace(ours, tracer=tracer)
        rounds = blocks_in_turns(tracer, [(warm(ours), True), (warm(plain), True)], seconds)
        _check(tracer, 3 * LAYERS)
    return rounds
