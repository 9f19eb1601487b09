"""What a start of a tuning is told, and what it tells; on real ranks: distributed/test_tune.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hooktrace import Tracer
from hooktrace.integrations.tuning.hooks import Files, told_of
from hooktrace.integrations.tuning.plan import MEASURED, Plan, cap_of, plan, shapes_of
from hooktrace.records import Batch
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample

MODEL = torch.nn.Linear(3, 2)
OTHER = torch.nn.Linear(2, 3)
SHAPES = shapes_of(MODEL)


@contextmanager
def tracer_of(batch: Batch) -> Iterator[Tracer]:
    """A tracer that has heard of one batch."""
    with Tracer() as tracer:
        tracer._recent.add(batch)
        yield tracer


def ask(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Plan:
    wanted = Plan(
        "folder", 100, **{"shapes": SHAPES, "hooks": ["fp16", "bf16"], "cap": 2.5} | changed
    )
    monkeypatch.setenv(MEASURED, wanted.encoded())
    return wanted


def test_a_model_is_known_by_the_shapes_that_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order; what is frozen, or left out of DDP, does not count."""
    assert plan() is None
    wanted = ask(monkeypatch)
    assert plan() == wanted
    assert wanted.is_of(MODEL)
    assert not wanted.is_of(OTHER)
    assert not wanted.is_of(torch.nn.Linear(6, 1))
    both = torch.nn.ModuleDict({"model": MODEL, "frozen": torch.nn.Linear(5, 5)})
    assert not wanted.is_of(both)
    both["frozen"].requires_grad_(False)
    assert wanted.is_of(both)
    both["frozen"].requires_grad_(True)
    both._ddp_params_and_buffers_to_ignore = {"frozen.weight", "frozen.bias"}  # type: ignore[assignment]
    assert wanted.is_of(both)


def test_the_limit_of_that_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others keep theirs, and so does it where none is asked for."""
    ask(monkeypatch)
    assert (cap_of(MODEL), cap_of(OTHER)) == (2.5, None)
    ask(monkeypatch, cap=None)
    assert cap_of(MODEL) is None


def test_records_are_told_apart_by_step(tmp_path: Path) -> None:
    """Medians of what counts, the largest error, the first failure and where it was."""
    steps = [sample.make_step(step) for step in (*range(1, 4), *range(10, 15))]
    steps[0] = (replace(steps[0][0], warmup=True, exposed_ns=999), steps[0][1])
    step, (bucket, other) = steps[-1]
    broken = replace(bucket, exception="ValueError: no")
    steps[-1] = (replace(step, complete=False, exposed_ns=999), (broken, other))
    steps.append(sample.probed(sample.make_step(12)))
    failure = replace(
        sample.make_anomaly(), step=bucket.step, bucket=bucket.bucket, stage="compress"
    )
    batch = sample.make_batch(0, steps=0)
    batch = replace(batch, steps=tuple(steps), records=(*batch.records, failure))
    exposed = sample.make_step(1)[0].exposed_ns
    with tracer_of(batch) as records:
        assert told_of(records, lambda step: step < 10) == {
            "exposed_ns": exposed, "wire_bytes": 4000, "error": None, "failed": None,
        }  # fmt: skip
        b = told_of(records, lambda step: step >= 10)
        assert (b["exposed_ns"], b["error"]) == (exposed, 0.25)
        assert b["failed"] == (False, "ValueError: no")
        records._recent.add(replace(batch, steps=(), records=(replace(failure, stage="wire"),)))
        assert told_of(records)["failed"] == (True, "ValueError: no")
    files = Files(tmp_path, ["a", "as it is"], lambda step: "a" if step < 10 else "as it is")
    files.export(batch)
    files.close()
    for folder, count in (("a", 3), ("as-it-is", 6)):
        ((_, paths),) = find_records(tmp_path / folder).items()
        assert len(read_parts(paths).steps) == count
