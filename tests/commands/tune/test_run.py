"""Jobs that cannot be tuned, from what their ranks say; on real jobs: distributed/test_tune.py."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.tune import run
from hooktrace.commands.tune.run import Tuning, caps_of
from hooktrace.integrations.tuning import WHERE
from hooktrace.integrations.tuning.turns import OWN
from hooktrace.records.errors import UsageError
from tests.commands.tune.test_measure import seen

MB = 2**20


@pytest.mark.parametrize(
    ("told", "asked", "said"),
    [
        ({"turns": 1}, {}, "It made 17 steps, fewer than 5 turns of 8 for each hook; pass"),
        ({"why_not": "the job does what cannot be tuned"}, {}, "does what cannot be tuned"),
        (
            {"kind": "fully_shard", "cap": None},
            {"hooks": ("fp16",)},
            "fp16 is no hook for a model under fully_shard; choose",
        ),
        ({}, {"hooks": ("fp16_reduce_scatter",)}, "fp16_reduce_scatter is no hook for a model und"),
        (
            # 10 turns of 8 steps that take 100 ms.
            {"step_ms": 100.0},
            {"seconds": 16, "hooks": ("fp16",)},
            "a step takes 0.1 s, so 5 turns of each hook take 8 s, more than half of what",
        ),
    ],
)
def test_a_job_that_cannot_be_tuned(
    told: dict[str, Any],
    asked: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is refused before anything is tried that cannot be told."""
    left = seen({OWN: told.pop("step_ms", 10.0)}, told.pop("turns", 12)) | {
        "ranks": 2, "cap": 25.0, "kind": "DDP", "number": 1, "bytes": 9, "refused": {},
    } | told  # fmt: skip

    def started(_: object, environment: dict[str, str], output: Path, __: float) -> int:
        output.write_text("bye")
        for rank in range(2):
            path = Path(f"{environment[WHERE]}-rank{rank}.json")
            path.write_text(json.dumps(left | {"rank": rank}))
        return 0

    monkeypatch.setattr(run, "run_job", started)
    options = {"hooks": (), "caps": (), "out": tmp_path} | asked
    end_s = time.monotonic() + options.pop("seconds", 1000)
    with pytest.raises(UsageError, match=said):
        Tuning([], end_s, 12, **options).run()


@pytest.mark.parametrize(
    ("size", "own", "asked", "caps"),
    [
        (40 * MB, 25.0, (), [50.0, 10.0, 5.0, 1.0]),
        (4 * MB, 25.0, (), [1.0]),
        (600 * MB, 25.0, (), [100.0, 50.0, 10.0]),  # of 1 MB there would be 600
        (40 * MB, 25.0, (25.0, 3.0), [3.0]),
    ],
)
def test_limits_that_cut_the_gradients_alike_are_tried_once(
    size: int, own: float, asked: tuple[float, ...], caps: list[float]
) -> None:
    """None that makes a step of very many buckets; or those that are asked for."""
    assert caps_of(size, own, asked) == caps
