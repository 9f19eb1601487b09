"""A calibration that is asked for: by an option, or by a command."""

from __future__ import annotations

from pathlib import Path

import torch

from hooktrace import Tracer
from hooktrace.exporters import RecordFileExporter
from hooktrace.exporters.retention import Retention
from hooktrace.ranks.control.messages import Command
from hooktrace.records.reader import read_parts
from hooktrace.tracing.calibrating import SETTLED_AFTER, calibration_of
from hooktrace.tracing.control import TracerControl
from hooktrace.tracing.sampling_plan import SamplingPlan
from tests.fakes import Job
from tests.probes.test_calibration import calls_of


def test_an_option_calibrates_after_the_first_steps() -> None:
    """Counted from the model's first one, that of a resumed job too."""
    with Tracer(error_every=0, calibrate=True, channel=False) as tracer:
        (call,) = calls_of(1)
        call.slot.model.first_step = 100
        SamplingPlan(tracer, None, "x", False).begin(None, call.slot, call.bucket)
        assert call.slot.model.sample_step == 100 + SETTLED_AFTER


def test_a_command_calibrates_from_a_step_that_all_ranks_know(tmp_path: Path) -> None:
    """Its steps are kept in detail, whatever the writer's retention is; training goes on."""
    writer = RecordFileExporter(tmp_path, retention=Retention(first_steps=0, window_steps=0))
    with Tracer([writer], error_every=0, channel=False) as tracer:
        job, control = Job(tracer, 2), TracerControl(lambda: [tracer], 0)
        assert control.do(Command(verb="calibrate")).trouble == "no model yet"
        for (parameter,) in job.parameters:
            parameter.requires_grad_(True)
        for step in range(45):
            if step == 3:
                done = control.do(Command(verb="calibrate", first={"model0": 10}))
                assert done.text == "model0: steps 10 to 39"
            for (parameter,) in job.parameters:
                parameter.sum().backward()
            job.step()
    found = read_parts([tmp_path / "plugins/hooktrace/rank00000.jsonl"])
    assert [r.step for r in found.computes] == [
        *range(11, 15), *range(23, 27), *range(35, 39),
    ]  # fmt: skip
    assert {b.step for b in found.buckets} >= set(range(10, 40))
    # In step 40 it ends.
    assert {s.step for s in found.steps if s.probed} == {0, *range(10, 41)}
    calibrated = calibration_of(tracer, "model0", 0)
    assert calibrated.steps == 30
    assert torch.equal(job.parameters[0][0].detach(), torch.zeros(4))
