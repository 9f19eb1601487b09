"""Time added to the training thread per bucket, by hooks of the same work side by side.

One gloo rank, 40 buckets of 16 KB.  Each variant is a DDP model of its own; a round runs one
backward pass of each, in an order that rotates, so that whatever else the machine does, and the
drain, fall on all of them.  A row is the median over the rounds of the difference (or ratio)
between two variants of the same round.

The budgets are for the training thread's own time: what it computes, waits left out.  Wall-clock
time holds the work of the callbacks and of everything else as well.

The process is held to one core.  With one rank a collective is over at once, and on two cores its
callback races with the rest of the hook, for the interpreter lock and for running inline: a hook
that is slower by 4 µs then makes the step faster.  On one core nothing races, and the callbacks'
time counts in full, though a training job hides much of it on another core.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks
from torch.nn.parallel import DistributedDataParallel

from .. import hooks
from ..tracer import Tracer
from ..wrapper import trace
from .backends import all_exporters, otlp_sink
from .ranks import hold_to_one_core, run_ranks
from .rows import Row, row_of

__all__ = ["run"]

_BUCKETS = 40
_WIDTH = 64
_WARMUP_ROUNDS = 20
_PAIRS: dict[str, tuple[Any, Any]] = {
    "allreduce": (torch_hooks.allreduce_hook, hooks.allreduce_hook),
    "fp16": (torch_hooks.fp16_compress_hook, hooks.fp16_compress_hook),
}

Times = dict[str, list[tuple[int, int]]]
"""By variant, of one backward pass in each round: the training thread's own ns, and wall-clock ns.
"""


def run(*, quick: bool) -> list[Row]:
    """Return the rows of all hooks, first with a tracer in memory, then with all exporters."""
    rounds = 100 if quick else 400
    rows: list[Row] = []
    with otlp_sink() as endpoint:
        for name in _PAIRS:
            for where in ("", endpoint):
                (times,) = run_ranks(1, _measure, name, rounds, where, deadline_s=300)
                rows += _rows(name, times, exporters=bool(where))
    return rows


def _rows(name: str, times: Times, *, exporters: bool) -> list[Row]:
    suffix = ", all exporters" if exporters else ""
    rows = []
    for hook, traced, untraced, budget in (
        ("staged", "staged traced", "staged", 5.0),
        ("opaque", "torch traced", "torch", 15.0),
    ):
        what = f"{name}, {hook} hook: traced - untraced{suffix}"
        added = _added_us(times, traced, untraced)
        rows.append(row_of(what, [own for own, _ in added], "µs/bucket", budget=budget))
        rows.append(row_of(f"{what}, wall clock", [wall for _, wall in added], "µs/bucket"))
    if not exporters:
        pairs = zip(times["staged"], times["torch"], strict=True)
        ratios = [staged / opaque for (_, staged), (_, opaque) in pairs]
        rows.append(row_of(f"{name}: untraced staged / torch's own", ratios, "ratio", budget=1.0))
    return rows


def _added_us(times: Times, traced: str, untraced: str) -> list[tuple[float, float]]:
    pairs = zip(times[traced], times[untraced], strict=True)
    scale = _BUCKETS * 1e3
    return [((t[0] - u[0]) / scale, (t[1] - u[1]) / scale) for t, u in pairs]


@dataclass
class _Variant:
    name: str
    model: DistributedDataParallel


def _measure(name: str, rounds: int, endpoint: str) -> Times:
    opaque, staged = _PAIRS[name]
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
