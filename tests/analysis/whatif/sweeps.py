"""A sweep of which one knows where lines cross: fixed work, and bytes over the bandwidth."""

from __future__ import annotations

import numpy as np

from hooktrace.analysis.whatif.sweep import BANDWIDTHS, Sweep

WORK_MS = {"allreduce": 60.0, "fp16": 70.0, "powersgd-rank4": 95.0, "allgather": 61.0}
SENT = {"allreduce": 16.8e6, "fp16": 8.4e6, "powersgd-rank4": 0.6e6, "allgather": 16.8e6}


def step_ms(hook: str, bandwidth: float) -> float:
    """Return work, and then the wire."""
    return WORK_MS[hook] + SENT[hook] / bandwidth * 1e3


def made_up(bandwidth: float = 50e6, *, is_named: bool = False) -> Sweep:
    """Return a sweep of an all-reduce run on a network of 400 Mbit/s."""
    hooks = tuple(WORK_MS)
    rows = [[step_ms(hook, b) for b in BANDWIDTHS.tolist()] for hook in hooks]
    return Sweep(
        hooks, BANDWIDTHS, np.array(rows), "allreduce", bandwidth,
        step_ms("allreduce", bandwidth), 2, 60_000.0, is_named,
    )  # fmt: skip
