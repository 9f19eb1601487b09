"""What opaque hooks sent: looked up in torch's Flight Recorder, or unknown for a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace import Tracer, trace
from hooktrace.probes.wire import FlightRecorder, Issued, WireSample
from hooktrace.tracing.sent import SentLookUp
from tests.fakes import buckets_of, fake_clock, opaque


def test_a_step_says_why_it_is_not_known_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    """And the log, once for all models of a hook; steps that were not sampled say nothing."""
    (bucket,) = buckets_of(1)
    with Tracer(clock=fake_clock(), error_every=2) as tracer:
        tracer._pipeline._assembler.sent._recorder = FlightRecorder({})
        traced = trace(opaque, tracer=tracer, model="net")
        for _ in range(5):
            traced(None, bucket)
        steps = tracer.steps()
        for bucket in (buckets_of(1)[0], buckets_of(1)[0]):
            for _ in range(3):
                traced(None, bucket)
    why = "this torch has no Flight Recorder for the hook's backend"
    assert [step.sent_unknown for step in steps] == [None, None, why, None, why]
    assert [step.sent for step in steps] == [None] * 5
    (message,) = (r.getMessage() for r in caplog.records if "sends is not known" in r.getMessage())
    assert message.startswith(f"what hook 'opaque' of net sends is not known in step 2: {why}; f")


def test_samples_of_steps_that_never_come_are_forgotten() -> None:
    """Their calls were lost."""
    looked_up = SentLookUp()
    for step in range(5000):
        looked_up.add(WireSample("net", step, 0, 0, 0))
    assert len(looked_up._samples) == 4096
    assert min(step for _, step in looked_up._samples) == 5000 - 4096


@pytest.mark.parametrize(("device", "sent", "is_told"), [("cpu", None, True), ("cuda", (), False)])
def test_where_nothing_is_listed_a_hook_may_still_send(
    device: str, sent: tuple[()] | None, is_told: bool
) -> None:
    """On gloo, whose sends and receives torch does not list; NCCL's it does."""
    model = SimpleNamespace(name="net", hook="pairs")
    slot = SimpleNamespace(model=model, device_type=device)
    call: Any = SimpleNamespace(slot=slot, step=2, staged=False, ready=5, launched=7, done=9)
    looked_up = SentLookUp()
    looked_up._recorder = FakeRecorder()  # type: ignore[assignment]
    looked_up.add(WireSample("net", 2, 0, 0, 0))
    found = looked_up.of_step([call])
    assert found.of_step == sent
    assert found.of_calls == [None if sent is None else ()]
    assert (found.why is not None and "sends and receives on gloo" in found.why) == is_told


class FakeRecorder:
    def issued(self, from_ns: int, to_ns: int, device_type: str) -> list[Issued]:
        return []
