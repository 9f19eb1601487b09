"""The whole job on two ranks: commands reach both, from the same step on; the hub sees both."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import hooktrace
from hooktrace import hooks
from hooktrace.exporters import RecordFileExporter
from hooktrace.exporters.retention import Retention
from hooktrace.records import JobStepRecord
from hooktrace.records.files import record_path
from hooktrace.records.reader import read_parts
from hooktrace.tracing.tracer import Tracer
from tests.distributed.harness import on
from tests.distributed.models import make_ddp, of_all_ranks, shared_folder
from tests.distributed.programs import finished
from tests.ranks.channel.jobs import wait_for

pytestmark = pytest.mark.slow

LEAST = Retention(first_steps=0, window_steps=0, window_every=1_000_000, extra_share=0.0)
"""Nothing is kept in detail unless somebody asks."""


class Job:
    """A model that trains until rank 0 has what it waits for."""

    def __init__(self, rank: int, tracer: Tracer) -> None:
        self.rank = rank
        self.ddp = make_ddp(0.005, layers=4)
        hooktrace.instrument(self.ddp, hooks.fp16_compress_hook, tracer=tracer, model="net")

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.ddp(torch.ones(4, 32)).square().mean().backward()

    def under(self, command: Any) -> Any:
        """Train on, on both ranks, until rank 0's command has been carried out by a thread."""
        found: list[Any] = []
        if self.rank == 0:
            found = [command()]
        dist.barrier()
        return found[0] if found else None


def checked(tracer: Tracer) -> list[int]:
    return [b.step for b in tracer.buckets() if b.error is not None]


# On a busy machine a rank may take long to answer, and this is not of ranks that do not.
@on(2)
@mock.patch("hooktrace.ranks.control._TIMEOUT_S", 20.0)
@mock.patch("hooktrace.ranks.control._WHERE_S", 20.0)
def test_commands_reach_all_ranks_from_the_same_step_on(rank: int) -> None:
    """Detail, probes, pause and resume, one after another; nothing is lost by that."""
    folder = shared_folder()
    with Tracer([RecordFileExporter(folder, retention=LEAST)], error_every=10) as tracer:
        job = Job(rank, tracer)
        job.train(40)
        assert _wait_for_channel(tracer, folder) == 0o600
        status = job.under(lambda: tracer.command("status"))
        job.under(lambda: tracer.command("detail", 5))
        job.train(40)

        # Four in a row, once the ranks have met; then a tenth of the steps again.
        job.under(lambda: tracer.command("probe", 4))
        job.train(160)
        steps = checked(tracer)
        runs = [steps[k : k + 4] for k in range(len(steps))]
        (burst,) = [run for run in runs if run == [*range(run[0], run[0] + 4)]]
        more = [step for step in steps if step > burst[-1]]
        assert more == [*range(more[0], more[-1] + 1, 10)]
        assert len(more) >= 5
        assert [steps, steps] == of_all_ranks(steps)

        # Steps are counted while it is paused, and probes begin again together.
        before = tracer.steps()[-1].step
        job.under(lambda: tracer.command("pause"))
        job.train(30)
        assert tracer.steps()[-1].step == before
        job.under(lambda: tracer.command("resume"))
        job.train(90)
        assert tracer.steps()[-1].step == before + 120
        steps = checked(tracer)
        assert len([step for step in steps if step > before + 30]) >= 3
        assert [steps, steps] == of_all_ranks(steps)

        stacks = job.under(lambda: tracer.command("stacks", rank=1))
        flush = job.under(lambda: tracer.command("flush"))
        terminal = job.under(lambda: _ctl(folder, "status"))
        assert tracer.losses() == {}
        del job
        dist.barrier()
    if rank == 0:
        assert {r: done.steps["net"] for r, done in status.ranks.items()} == {0: 39, 1: 39}
        assert status.silent == []
        assert "test_control.py" in stacks.ranks[1].text
        assert stacks.ranks[0].text == ""
        assert {done.text for done in flush.ranks.values()} == {"flushed"}
        # A terminal reads where the hub is from a file of the owner's.
        code, told, errors = terminal
        assert (code, errors) == (0, "")
        assert sorted(told["ranks"]) == ["0", "1"]
        assert not (folder / "plugins/hooktrace/channel.json").exists()
    # Five in a row are kept in detail, soon after the 40 steps before, beside checked ones.
    kept = sorted({b.step for b in read_parts([record_path(folder, rank)]).buckets})
    in_a_row = [
        kept[k] for k in range(len(kept)) if kept[k : k + 5] == [*range(kept[k], kept[k] + 5)]
    ]
    assert any(40 <= first <= 60 for first in in_a_row)
    assert [kept, kept] == of_all_ranks(kept)


def _wait_for_channel(tracer: Tracer, logdir: Path) -> int:
    """Return the mode of the file that says where the hub is, once both ranks are there."""
    path = logdir / "plugins/hooktrace/channel.json"

    def both_are_there() -> bool:
        channel = tracer._channel
        is_known = path.exists() and channel is not None and channel.hub is not None
        return is_known and (len(channel.roster) == 2 or dist.get_rank() > 0)

    assert wait_for(both_are_there), "the ranks have no channel"
    dist.barrier()
    return path.stat().st_mode & 0o777


def _ctl(logdir: Path, *words: str) -> Any:
    """Return what ``hooktrace ctl`` says in another process."""
    code, told, said = finished(["-m", "hooktrace", "ctl", logdir, *words, "--json"], logdir)
    return code, json.loads(told or "{}"), said


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
    seen["top"] = finished(["-m", "hooktrace", "top", logdir], logdir)[1]
