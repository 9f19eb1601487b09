"""The whole job on two real ranks: its record at rank 0, ``hooktrace top``."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hooktrace.exporters import RecordFileExporter
from hooktrace.records import JobStepRecord
from hooktrace.tracing.tracer import Tracer
from tests.distributed.harness import on
from tests.distributed.models import shared_folder
from tests.distributed.test_control import Job

pytestmark = pytest.mark.slow

LATE, LATE_S = 1, 0.1
"""Far more than a busy machine holds up the other rank."""

_ENOUGH = 9
"""Steps of which the most are to name it."""

_DEADLINE_S = 60.0


@on(2)
def test_the_whole_job_is_looked_at_while_it_trains(rank: int) -> None:
    """Most records name the late rank, since a machine may hold up another; ``top`` shows it."""
    folder = shared_folder()
    seen: dict[str, Any] = {}
    with Tracer([RecordFileExporter(folder)], error_every=0) as tracer:
        job = Job(rank, tracer)
        looking = threading.Thread(target=_look, args=(tracer, folder, seen))
        if rank == 0:
            looking.start()
        ended = torch.zeros(())
        while not ended:
            time.sleep(LATE_S if rank == LATE else 0.0)
            job.train(1)
            ended.fill_(rank == 0 and not looking.is_alive())
            dist.broadcast(ended, 0)
        dist.barrier()
        del job
    assert tracer.losses() == {}
    if rank == 0:
        assert seen["last"].count(LATE) > len(seen["last"]) / 2
        assert (2, 2) in seen["ranks"]
        assert "2 of 2 ranks have told" in seen["top"]


def _look(tracer: Tracer, logdir: Path, seen: dict[str, Any]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        of_job = tracer.records(JobStepRecord)
        seen["last"] = [r.spread.last_rank for r in of_job if r.spread.last_rank is not None]
        seen["ranks"] = {(r.world_size, r.spread.ranks) for r in of_job}
        if len(seen["last"]) >= _ENOUGH:
            break
        time.sleep(0.1)
    command = [sys.executable, "-m", "hooktrace", "top", str(logdir)]
    seen["top"] = subprocess.run(
        command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    ).stdout
