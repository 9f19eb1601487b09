"""Stages that are hooktrace's own, and a rank that is stopped, on real gloo ranks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.analysis.report import build_report
from hooktrace.analysis.run import load
from hooktrace.exporters import RecordFileExporter
from hooktrace.records.files import find_records
from hooktrace.records.units import ms
from tests.distributed.harness import on, scenario
from tests.distributed.models import backward, make_ddp, of_all_ranks, shared_folder
from tests.distributed.test_skew import all_know

pytestmark = pytest.mark.slow

STEPS = 24
EVERY = 5
STOPPED_STEP = 14
STOPPED_S = 2.6
MEETING = 10
"""The step at which ranks that are in step meet for their probes."""


@on(2)
def test_a_probed_step_gives_no_times(rank: int) -> None:
    """Nor do those at which ranks ask for each other and meet; errors are those of probed steps.

    A local trial is a probe too: it runs before the hook, on the thread that computes the
    gradients.  Debug mode looks at every step, so none shows how long training takes without it.
    """
    for name, hook, state, options in (
        ("staged", hooks.allreduce_hook, None, {}),
        ("opaque", default_hooks.allreduce_hook, None, {}),
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
        # In step 2 a rank asks again that came to step 1 before the first one had named a step.
        probed = [s.step for s in steps if s.probed and (s.step != 2 or name == "debug")]
        counted = [s.step for s in steps if s.counts]
        if name == "local":
            assert compared == list(range(EVERY, STEPS, EVERY))
            assert probed == [0, *compared]
        elif name == "debug":
            assert (compared, probed, counted) == ([], list(range(STEPS)), [])
        else:
            assert compared == [s for s in range(MEETING + 1, STEPS) if s % EVERY == 0]
            assert probed == [0, 1, MEETING, *compared]
            assert summaries[0].steps == len(counted)
            assert sum(b.error_count for b in summaries[0].buckets) == len(compared)
        assert set(counted).isdisjoint(probed)
        # With a probe in exactly the buckets that are marked; turns are stamped, and no queue.
        assert all(map(_is_whole, buckets))
        assert {b.probed for b in buckets if b.stage_ns("probe")} == {True}
        assert {b.probed for b in buckets if not b.stage_ns("probe")} <= {False}
        turns = [s for b in buckets for s in b.stages if s.name == "turn"]
        assert any(s.end_ns > s.start_ns for s in turns) == (name == "rounds")
        assert not any(s.derived for s in turns)


def _is_whole(bucket: hooktrace.BucketRecord) -> bool:
    """Whether a bucket's stages follow each other from ready to done."""
    ends = [(s.start_ns, s.end_ns) for s in bucket.stages]
    follow = all(one[1] == other[0] for one, other in pairwise(ends))
    return follow and (ends[0][0], ends[-1][1]) == (bucket.ready_ns, bucket.done_ns)


def _is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _until(true: Callable[[], bool]) -> None:
    """Wait until something is true; the scenario's deadline ends it."""
    while not true():
        time.sleep(0.001)


@on(2)
@scenario(apart=True)
def test_a_rank_that_is_stopped_after_it_launched_its_buckets(rank: int) -> None:
    """The step is named, as a stall and as slow; who was stopped no record tells."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(2)]))
    folder = shared_folder()
    exporter = RecordFileExporter(folder)
    pids = of_all_ranks(os.getpid())
    now = -1

    def stopping(state: Any, bucket: Any) -> Any:
        stops = now == STOPPED_STEP and bucket.is_last()
        if stops and rank == 0:  # which has the collective end when the other one goes on
            _until(lambda: _is_stopped(pids[1]))
            subprocess.Popen(["sh", "-c", f"sleep {STOPPED_S}; kill -CONT {pids[1]}"])
        future = default_hooks.allreduce_hook(None, bucket)
        if stops and rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return future

    with Tracer([exporter], error_every=0) as tracer:
        hooktrace.instrument(ddp, stopping, None, tracer=tracer)
        for now in range(STEPS):
            backward(ddp, rank, now, width=1000)
        _until(lambda: all_know(tracer))  # that ranks were ready at once, their clocks tell
        marks = [(a.kind, a.step, a.rank) for a in tracer.anomalies()]
        (exposed_ns,) = [s.exposed_ns for s in tracer.steps() if s.step == STOPPED_STEP]
    assert ("stall", STOPPED_STEP, rank) in marks
    dist.barrier()
    (model,) = build_report(load(find_records(folder))).models
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    (stall,) = [f for f in model.findings if f.rule == "stall"]
    assert STOPPED_STEP in stall.steps
    # Not how long it was meant to be: on a busy machine it is stopped for longer.
    exposed = of_all_ranks(exposed_ns)
    stalled = {step for own in of_all_ranks(marks) for _, step, _ in own}
    if stalled == {STOPPED_STEP}:  # on a busy machine other steps may stall too
        assert any(ms(ns) in stall.evidence[0] for ns in exposed)
        (slow,) = [f for f in model.findings if f.rule == "slow_steps_cost"]
        assert STOPPED_STEP in slow.steps
        assert slow.rank is None
