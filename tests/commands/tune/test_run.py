"""Jobs that cannot be tuned, from what their ranks say; on real jobs: distributed/test_tune.py."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.commands.tune.run import Tuning, caps_of
from hooktrace.integrations.tuning.plan import OWN
from hooktrace.records.errors import UsageError
from tests.commands.tune.test_measure import seen

MB = 2**20


class Asked(Tuning):
    """Each start is told the same by its two ranks."""

    def __init__(self, told: dict[str, Any], asked: dict[str, Any]) -> None:
        asked = {"seconds": 1000, "steps": 60, "hooks": (), "caps": (), "out": None} | asked
        super().__init__([], **asked)
        turns, step_ms = told.pop("turns", 12), told.pop("step_ms", 10.0)
        self._told = seen({OWN: step_ms}, turns) | {
            "follows": False, "ranks": 2, "cap": 25.0, "kind": "DDP", "number": 0, "bytes": 9,
            "effects": False, "hook": "h", "failed": {},
        } | told  # fmt: skip

    def start(self, limit_s: float = 0.0, **more: Any) -> list[Any]:
        return [self._told] * 2


@pytest.mark.parametrize(
    ("told", "asked", "said"),
    [
        ({"ranks": 1}, {}, "the job has one rank, which sends nothing; start it with two or"),
        ({"turns": 1}, {}, r"the job ended after 17 steps, too few to tell anything; pass a"),
        ({"effects": True}, {}, "the job's own hook, h, does more than average gradients, so"),
        (
            {"kind": "fully_shard", "cap": None},
            {"hooks": ("fp16",)},
            "fp16 is no hook for a model under fully_shard; choose",
        ),
        (
            {"kind": "fully_shard", "cap": None},
            {"caps": (1.0,)},
            "a sharded model has no bucket_cap_mb; leave --caps out",
        ),
        ({}, {"hooks": ("fp16_reduce_scatter",)}, "fp16_reduce_scatter is no hook for a model und"),
        (
            # 11 turns of 8 steps that take 100 ms and, three of them, 5 ms more.
            {"step_ms": 100.0},
            {"seconds": 17, "hooks": ("fp16",)},
            r"a step takes 0.1 s, and 8 s, half of what is left, are too few for 1 of --hooks",
        ),
    ],
)
def test_a_job_that_cannot_be_tuned(told: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    """It is refused before anything is tried that cannot be told."""
    with pytest.raises(UsageError, match=said):
        Asked(told, asked).run()


@pytest.mark.parametrize(
    ("size", "own", "asked", "caps"),
    [
        (40 * MB, 25.0, (), [1.0, 5.0, 10.0, 50.0]),
        (4 * MB, 25.0, (), [1.0]),
        (600 * MB, 25.0, (), [10.0, 50.0, 100.0]),  # of 1 MB there would be 600
        (40 * MB, 25.0, (25.0, 3.0), [3.0]),
    ],
)
def test_limits_that_cut_the_gradients_alike_are_tried_once(
    size: int, own: float, asked: tuple[float, ...], caps: list[float]
) -> None:
    """None that makes a step of very many buckets; or those that are asked for."""
    assert caps_of(size, own, asked) == caps
