"""What the ranks do in ``test_stages.py``: probed steps, turns, and a rank that is stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from tests.distributed.harness import scenario
from tests.distributed.models import backward, make_ddp
from tests.distributed.skew_scenarios import all_know

STEPS = 24
EVERY = 5
STOPPED_STEP = 14
STOPPED_S = 2.6


def probed_steps(rank: int) -> dict[str, dict[str, Any]]:
    """Return by hook and option which steps were probed and compared, and how their stages are."""
    facts = {}
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
        facts[name] = {
            "probed": [s.step for s in steps if s.probed],
            "compared": sorted({b.step for b in buckets if b.error is not None}),
            "counted": [s.step for s in steps if s.counts],
            "summed up": summaries[0].steps if summaries else 0,
            "errors": sum(b.error_count for b in summaries[0].buckets) if summaries else 0,
            "without gaps": all(_is_whole(b) for b in buckets),
            "with probe": {b.probed for b in buckets if b.stage_ns("probe")},
            "without probe": {b.probed for b in buckets if not b.stage_ns("probe")},
            "turns": any(b.stage_ns("turn") for b in buckets),
            "turns are derived": any(
                s.derived for b in buckets for s in b.stages if s.name == "turn"
            ),
        }
    return facts


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


@scenario(apart=True)
def stopped_after_launching(rank: int) -> dict[str, Any]:
    """Return what is said where rank 1 is stopped as soon as it has launched its last bucket."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(2)]))
    folder: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    exporter = RecordFileExporter(folder[0])
    pids: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
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
        exposed = [s.exposed_ns for s in tracer.steps() if s.step == STOPPED_STEP]
    dist.barrier()
    (model,) = build_report(load(find_records(Path(folder[0])))).models
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])
    said = [f for f in model.findings if f.rule == "steps_stalled"]
    return {
        "marks": marks,
        "exposed": exposed,
        "said": [(f.sentence, f.rank, *f.evidence) for f in said],
    }
