"""What is said at the end, and of what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hooktrace
from hooktrace.integrations import ending
from tests.fakes import Job


def test_the_summary_says_what_to_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A line a model, and the command; neither medians nor a folder that there are not."""
    monkeypatch.setenv("HOOKTRACE_RECORD_DIR", str(tmp_path))
    (tmp_path / "plugins" / "hooktrace").mkdir(parents=True)
    with hooktrace.Tracer() as tracer:
        assert ending._summary(tracer) == [
            "nothing was recorded: no model has communicated while it was traced"
        ]
        (tmp_path / "plugins" / "hooktrace" / "rank00000.jsonl").touch()
        job = Job(tracer)
        job.step()
        assert tracer.flush()
        assert ending._summary(tracer) == [
            "too few steps were traced for medians",
            f"to open it: hooktrace report {tmp_path}",
        ]
        for _ in range(2):
            job.step()
        first, *_ = ending._summary(tracer)
    assert ", medians of " in first
    monkeypatch.setenv("HOOKTRACE_RECORD_DIR", str(tmp_path / "elsewhere"))
    assert not [line for line in ending._summary(tracer) if "to open" in line]


@pytest.mark.parametrize(
    ("world_size", "children", "reason"),
    [
        ("1", False, "it ran as one process"),
        ("1", True, "was not wrapped in DistributedDataParallel"),
        ("4", False, "was not wrapped in DistributedDataParallel"),
    ],
)
def test_the_reason_follows_the_job(
    world_size: str, children: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job with several processes nobody says that it had one."""
    monkeypatch.setenv("WORLD_SIZE", world_size)
    monkeypatch.setattr(ending, "_had_children", lambda: children)
    monkeypatch.setattr(ending, "_has", lambda name: False)
    assert reason in ending._why()


def test_a_sharded_model_is_found() -> None:
    """By its class, as both rebuilds of FSDP name theirs; a plain model is none."""

    class FSDPModule:
        pass

    class Sharded(FSDPModule, torch.nn.Linear):
        pass

    code = "from hooktrace.integrations import ending; print(ending._has('FSDPModule'))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
    model = Sharded(1, 1)
    assert ending._has("FSDPModule")
    del model
