"""Time that tracing adds per bucket, by hooks of the same work side by side.

40 buckets of 16 KB.  Each variant is a DDP model of its own; a round runs one backward pass of
each, in an order that rotates, so that whatever else the machine does, and the drain, fall on all
of them.  A sample is the difference (or ratio) between two variants of one round.

*Training thread*, with budgets: two ranks, where callbacks run on gloo's threads as in a real job,
and the time is the training thread's own: what it computes, waits left out.

*All threads*: one rank held to one core, wall-clock time.  With one rank a collective is over at
once and most callbacks run inline on the training thread, so this is all that tracing executes.
(On two cores a callback would race with the rest of its hook for running inline and for the
interpreter lock: there a hook that is slower by 4 µs can make the step faster.)
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks
from torch.nn.parallel import DistributedDataParallel

from ... import hooks
from ...tracing.traced_hook import trace
from ...tracing.tracer import Tracer
from .backends import all_exporters, otlp_sink
from .ranks import hold_to_one_core, run_ranks
from .rows import Row, row_of

__all__ = ["run"]

_BUCKETS = 40
_WIDTH = 64
_WARMUP_ROUNDS = 10
_OWN, _WALL = 0, 1
_PAIRS: dict[str, tuple[Any, Any]] = {
    "allreduce": (torch_hooks.allreduce_hook, hooks.allreduce_hook),
    "fp16": (torch_hooks.fp16_compress_hook, hooks.fp16_compress_hook),
}

Times = dict[str, list[tuple[int, int]]]
"""By variant, of one backward pass in each round: the training thread's own ns, and wall-clock ns.
"""


def run(*, quick: bool) -> list[Row]:
    """Return the rows of all hooks, with a tracer in memory and with all exporters."""
    rounds = 40 if quick else 160
    rows: list[Row] = []
    with otlp_sink() as endpoint:
        for name in _PAIRS:
            for where, suffix in (("", ""), (endpoint, ", all exporters")):
                times = _both(run_ranks(2, _measure, name, rounds, where, deadline_s=300))
                own = _side(times, _OWN)
                rows += _added_rows(name, own, f"training thread{suffix}", budget=True)
                if not where:
                    rows.append(_ratio_row(name, own, "training thread"))
        for name in _PAIRS:
            (times,) = run_ranks(1, _measure, name, 2 * rounds, "", deadline_s=300)
            rows += _added_rows(name, _side(times, _WALL), "all threads", budget=False)
            rows.append(_ratio_row(name, _side(times, _WALL), "all threads"))
    return rows


def _both(ranks: list[Times]) -> Times:
    return {name: [pair for times in ranks for pair in times[name]] for name in ranks[0]}


def _side(times: Times, side: int) -> dict[str, list[int]]:
    return {name: [pair[side] for pair in pairs] for name, pairs in times.items()}


def _added_rows(name: str, ns: dict[str, list[int]], where: str, *, budget: bool) -> list[Row]:
    rows = []
    for kind, traced, untraced, allowed in (
        ("staged", "staged traced", "staged", 5.0),
        ("opaque", "torch traced", "torch", 15.0),
    ):
        pairs = zip(ns[traced], ns[untraced], strict=True)
        rows.append(
            row_of(
                f"{name}, {kind} hook: traced - untraced, {where}",
                [(t - u) / _BUCKETS / 1e3 for t, u in pairs],
                "µs/bucket",
                budget=allowed if budget else None,
            )
        )
    return rows


def _ratio_row(name: str, ns: dict[str, list[int]], where: str) -> Row:
    pairs = zip(ns["staged"], ns["torch"], strict=True)
    what = f"{name}: backward with the untraced staged hook / with torch's own, {where}"
    return row_of(what, [staged / own for staged, own in pairs], "ratio", budget=1.0)


@dataclass
class _Variant:
    name: str
    model: DistributedDataParallel


def _measure(name: str, rounds: int, endpoint: str) -> Times:
    opaque, staged = _PAIRS[name]
    if dist.get_world_size() == 1:
        hold_to_one_core()
    with (
        tempfile.TemporaryDirectory() as directory,
        Tracer(all_exporters(directory, endpoint) if endpoint else []) as tracer,
    ):
        variants = [
            _variant("torch", opaque),
            _variant("staged", staged),
            _variant("staged traced", trace(staged, tracer=tracer)),
            _variant("torch traced", trace(opaque, tracer=tracer)),
        ]
        times = _interleave(variants, rounds)
        settled = {len(layout.buckets) for layout in tracer.layouts() if layout.generation}
        if settled != {_BUCKETS}:
            raise RuntimeError(
                f"DDP made {settled} buckets where {_BUCKETS} were meant; this version of torch "
                "cuts buckets in another way: adapt the model"
            )
    return times


def _variant(name: str, hook: Callable[..., Any]) -> _Variant:
    layers = [torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(_BUCKETS)]
    model = DistributedDataParallel(
        torch.nn.Sequential(*layers), bucket_cap_mb=_WIDTH * _WIDTH * 4 / 2**20
    )
    model.register_comm_hook(None, hook)
    return _Variant(name, model)


def _interleave(variants: list[_Variant], rounds: int) -> Times:
    data = torch.randn(8, _WIDTH)
    times: Times = {v.name: [] for v in variants}
    for count in range(_WARMUP_ROUNDS + rounds):
        shift = count % len(variants)
        for variant in variants[shift:] + variants[:shift]:
            variant.model.zero_grad()
            loss = variant.model(data).sum()
            wall, own = time.perf_counter_ns(), time.thread_time_ns()
            loss.backward()
            own, wall = time.thread_time_ns() - own, time.perf_counter_ns() - wall
            if count >= _WARMUP_ROUNDS:
                times[variant.name].append((own, wall))
    return times
