"""Jobs that cannot be tuned, from what their ranks say; on real jobs: distributed/test_tune.py."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.commands.tune.run import _Tuning
from hooktrace.integrations.tuning.rounds import OWN
from hooktrace.records.errors import UsageError
from tests.commands.tune.test_measure import seen


class Job:
    """Each start is told the same by its two ranks."""

    startup_s = 0.0
    step_s = 0.0
    shapes = ""
    trouble = ""

    def __init__(self, rounds: int = 12, **told: Any) -> None:
        self.notes: list[str] = []
        known: dict[str, Any] = {
            "follows": False,
            "ranks": 2,
            "cap": 25.0,
            "kind": "ddp",
            "shapes": "",
            "bytes": 9,
        }
        known |= {"effects": False, "hook": "h", "hooks": {OWN: {"failed": None}}, "here": 2}
        self._told = seen({OWN: 10.0}, rounds) | known | told

    def left(self) -> float:
        return 1000.0

    def start(self, rounds: int, seconds: float, **more: Any) -> list[Any]:
        return [self._told] * 2


@pytest.mark.parametrize(
    ("told", "hooks", "caps", "said"),
    [
        ({"ranks": 1}, (), (), "the job has one rank, which sends nothing; start it with two or"),
        ({"rounds": 1}, (), (), r"the job ended after 17 steps, too few to tell anything; pass a"),
        ({"effects": True}, (), (), "the job's own hook, h, does more than average gradients, so"),
        ({"kind": "fsdp2"}, ("fp16",), (), "fp16 is no hook for a model under fully_shard; choose"),
        ({"kind": "fsdp2"}, (), (1.0,), "a sharded model has no bucket_cap_mb; leave --caps out"),
        ({}, ("fp16_reduce_scatter",), (), "fp16_reduce_scatter is no hook for a model under DDP;"),
    ],
)
def test_a_job_that_cannot_be_tuned(
    told: dict[str, Any], hooks: tuple[str, ...], caps: tuple[float, ...], said: str
) -> None:
    """It is refused before anything is tried that cannot be told."""
    job: Any = Job(**told)
    with pytest.raises(UsageError, match=said):
        _Tuning(job, 12, hooks, caps).run()
