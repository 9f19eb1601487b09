"""What the traced hook does beside the hook itself, with buckets made up."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.staging import group_hooks
from hooktrace.staging.calls import BucketCall
from hooktrace.tracing.traced_hook import _PASSES, _PassCounter
from tests.fakes import Job, calls_in_flight, plain


def raising(*_: object) -> Any:
    """Fail as hooktrace itself may, out of memory."""
    raise MemoryError("of hooktrace's own")


@pytest.mark.parametrize("buckets", [1, 2])
def test_a_call_that_could_not_be_recorded_is_a_call_of_its_step(buckets: int) -> None:
    """Ranks probe by the count of steps, and another one may have recorded it."""
    with Tracer(error_every=0, align_clocks=False) as tracer:
        job = Job(tracer, buckets)
        for step in range(4):
            with mock.patch.object(job.hook, "_clock", raising if step == 2 else tracer.clock):
                job.step()
        tracer.flush()
        assert tracer.losses() == {"stamp_failed": buckets}
        assert [slot.model.step for slot in job.hook._layout.by_buffer.values()] == [3] * buckets


def test_a_call_that_could_not_be_recorded_is_not_in_flight_and_lets_go_of_its_probe() -> None:
    """Nothing of it ever ends."""
    with Tracer(error_every=1, align_clocks=False) as tracer:
        job = Job(tracer)
        job.step()
        look = mock.Mock()
        sampler = mock.Mock(enter=lambda *_: look, next_step=0)
        model = job.hook._layout.models[0]
        model.sampling, model.sample_step = sampler, 0
        with mock.patch.object(BucketCall, "watch_backward", raising):
            job.step()
        assert calls_in_flight(tracer) == 0
        look.abandon.assert_called_once_with("MemoryError: of hooktrace's own")


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("begins", [0, 1, 4])
@pytest.mark.parametrize("calls", [1, 5])
def test_steps_have_their_numbers_after_a_pause(buckets: int, begins: int, calls: int) -> None:
    """Wherever it began and ended, as on a rank that paused some calls earlier, or not at all."""
    resumed, end = begins + calls, begins + calls + 3 * buckets
    with Tracer(error_every=0, align_clocks=False) as tracer:
        job = Job(tracer, buckets)
        for number in range(end):
            tracer.recording = not begins <= number < resumed
            job.hook(None, job.buckets[number % buckets]).wait()
            (model,) = tracer.models.all()
            assert model.position[0] == number // buckets
        tracer.flush()
        recorded = [s for s in tracer.steps() if s.step * buckets >= resumed]
        assert [s.step for s in recorded] == [*range(-(-resumed // buckets), end // buckets)]
        assert all(s.complete for s in recorded)
        assert tracer.losses() == {}


def test_what_is_sampled_of_a_model_is_decided_once_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the first bucket of a step, by which the other ranks know it."""
    monkeypatch.setattr(group_hooks, "available", True)
    with Tracer(error_every=1, align_clocks=False) as tracer:
        job = Job(tracer, 2)
        tracer.recording = False
        job.step()
        job.hook(None, job.buckets[0])
        tracer.recording = True
        job.hook(None, job.buckets[1])
        (model,) = tracer.models.all()
        assert (model.step, model.sampling) == (1, None)
        job.hook(None, job.buckets[0])
        assert (model.step, model.sampling is None) == (2, False)


@pytest.mark.parametrize("fails", ["clock", "start"])
def test_a_notice_that_fails_does_not_fail_backward(fails: str) -> None:
    """In which the pass is counted; that nothing can be said of the hook is."""
    with Tracer(error_every=0, align_clocks=False) as tracer:
        hook, model = trace(plain, tracer=tracer), mock.Mock(require_backward_grad_sync=True)
        parameter = torch.nn.Parameter(torch.zeros(1))
        counter = _PassCounter(model, parameter, hook.notices)
        with mock.patch.object(tracer, fails, mock.Mock(side_effect=OSError("no clock, thread"))):
            for _ in range(_PASSES + 1):
                counter(parameter)
        assert not parameter._post_accumulate_grad_hooks  # no pass is counted any more
    assert tracer.anomalies() == []
    assert tracer.losses() == {"stamp_failed": 1}
