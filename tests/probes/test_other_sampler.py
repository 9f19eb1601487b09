"""Of whose step a window is; what it shows, real processes do (test_plain_hooks.py)."""

from __future__ import annotations

from hooktrace import Tracer
from hooktrace.probes.other_sampler import OtherSampler
from hooktrace.records.other import OtherCollectives
from hooktrace.staging import group_hooks


def test_a_window_ends_where_another_model_opens_one_or_with_a_pause() -> None:
    """Of two models that take turns both are recorded, though each step of both is looked at."""
    a, b = OtherSampler(1), OtherSampler(1)
    with Tracer() as tracer:
        tracer.start()
        for step in (2, 3):
            a.at("a", step, 10 * step, tracer)
            b.at("b", step, 10 * step + 1, tracer)
        assert group_hooks.window is not None
        assert group_hooks.window.owner is b
        tracer.recording = False
        assert group_hooks.window is None
        seen = tracer.records(OtherCollectives)
    found = [(one.model, one.step, one.time_ns, one.until_ns) for one in seen]
    assert found == [("a", 2, 20, 21), ("b", 2, 21, 30), ("a", 3, 30, 31)]
