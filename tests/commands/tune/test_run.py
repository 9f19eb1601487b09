"""Jobs that cannot be tuned, from what their ranks say; on real jobs: distributed/test_tune.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hooktrace.commands.tune.run import Tuning
from hooktrace.integrations.tuning.rounds import OWN
from hooktrace.records.errors import UsageError
from tests.commands.tune.test_measure import seen


class Asked(Tuning):
    """Each start is told the same by its two ranks."""

    def __init__(self, hooks: Sequence[str], caps: Sequence[float], **told: Any) -> None:
        super().__init__([], seconds=1000, rounds=12, hooks=hooks, caps=caps, out=None)
        rounds = told.pop("turns", 12)
        self._told = seen({OWN: 10.0}, rounds) | {
            "follows": False, "ranks": 2, "cap": 25.0, "kind": "DDP", "shapes": "", "bytes": 9,
            "effects": False, "hook": "h", "failed": {},
        } | told  # fmt: skip

    def start(self, rounds: int, limit_s: float, **more: Any) -> list[Any]:
        return [self._told] * 2


@pytest.mark.parametrize(
    ("told", "hooks", "caps", "said"),
    [
        ({"ranks": 1}, (), (), "the job has one rank, which sends nothing; start it with two or"),
        ({"turns": 1}, (), (), r"the job ended after 17 steps, too few to tell anything; pass a"),
        ({"effects": True}, (), (), "the job's own hook, h, does more than average gradients, so"),
        (
            {"kind": "fully_shard", "cap": None},
            ("fp16",),
            (),
            "fp16 is no hook for a model under fully_shard; choose",
        ),
        (
            {"kind": "fully_shard", "cap": None},
            (),
            (1.0,),
            "a sharded model has no bucket_cap_mb; leave --caps out",
        ),
        ({}, ("fp16_reduce_scatter",), (), "fp16_reduce_scatter is no hook for a model under DDP;"),
    ],
)
def test_a_job_that_cannot_be_tuned(
    told: dict[str, Any], hooks: tuple[str, ...], caps: tuple[float, ...], said: str
) -> None:
    """It is refused before anything is tried that cannot be told."""
    with pytest.raises(UsageError, match=said):
        Asked(hooks, caps, **told).run()
