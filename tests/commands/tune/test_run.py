"""Jobs that cannot be tuned, from what their ranks say; on real jobs: distributed/test_tune.py."""

from __future__ import annotations

import json
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.tune import run
from hooktrace.commands.tune.run import Tuning, caps_of
from hooktrace.commands.tune.show import sentence
from hooktrace.integrations.tuning import MEASURED, WHERE
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
        "ranks": 2, "cap": 25.0, "kind": "DDP", "number": 1, "sizes": [9], "first_cap": 1.0,
        "refused": {},
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
    ("second_ms", "says"),
    [
        (10.0, "Nothing beats the job as it is by more than the noise"),
        (8.8, "With the plain average at 1 MB steps are 13 % (12 to 14) shorter"),
        (None, "With the plain average at 1 MB steps were 14 % shorter in one start of the job;"),
    ],
)
def test_what_is_faster_in_one_start_has_to_be_so_in_a_second(
    second_ms: float | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole starts differ: here the first one with buckets of 1 MB was faster by 14 %."""
    smaller, caps = chain([8.6], repeat(second_ms)), list[float | None]()

    def started(_: object, environment: dict[str, str], output: Path, __: float) -> int:
        plan = json.loads(environment[MEASURED])
        caps.append(plan["cap"])
        step_ms = 10.0 if plan["cap"] is None else next(smaller)
        output.write_text("bye")
        told = {
            "ranks": 2, "rank": 0, "kind": "DDP", "number": 1, "sizes": [MB] * 4, "model": "Net",
            "hook": "ddp_allreduce", "cap": plan["cap"] or 25.0, "first_cap": 25.0, "refused": {},
        }  # fmt: skip
        steps = dict.fromkeys([OWN, *plan["hooks"]], step_ms or 1.0)
        left = seen(steps, 12 if step_ms else 0) | told
        Path(f"{environment[WHERE]}-rank0.json").write_text(json.dumps(left))
        return 0

    monkeypatch.setattr(run, "run_job", started)
    asked = {"hooks": ("allreduce",), "caps": (1.0, 50.0), "out": tmp_path}
    tuning = Tuning([], time.monotonic() + 1000, 12, **asked)
    assert tuning.run()
    assert caps[:4] == [None, None, 1.0, 1.0]
    assert sentence(tuning.tuned()).startswith(says)
    assert "bucket_cap_mb=50 was not tried: it makes the same buckets as another." in tuning.notes


@pytest.mark.parametrize(
    ("sizes", "own_first", "asked", "caps"),
    [
        ([MB] * 30, 1.0, (), [50.0, 10.0, 5.0, 1.0]),  # 50: without a first one of 1 MB
        ([MB] * 40, 25.0, (), [50.0, 10.0, 5.0, 1.0]),
        ([2 * MB] * 2, 25.0, (), [1.0]),
        ([4 * MB], 1.0, (), []),
        ([MB] * 600, 25.0, (), [100.0, 50.0, 10.0]),  # of 1 MB there would be 600
        ([MB] * 40, 25.0, (25.0, 3.0, 60.0, 70.0), [60.0, 3.0]),
    ],
)
def test_limits_that_cut_the_gradients_alike_are_tried_once(
    sizes: list[int], own_first: float, asked: tuple[float, ...], caps: list[float]
) -> None:
    """None that makes a step of very many buckets, unless it is asked for."""
    assert caps_of(sizes, 25.0, own_first, asked) == caps
