"""Whose window is open; what is seen in one is in tests/distributed/test_other_collectives.py."""

from __future__ import annotations

from hooktrace import Tracer
from hooktrace.staging import other_collectives


def test_a_window_gives_way() -> None:
    """To the first model that asks again, as its owner trains no more; and to a pause."""
    with Tracer() as tracer:
        opens = [other_collectives.begin(owner, tracer, "net", 2, 0) for owner in ("gone", *"bcb")]
        assert opens == [True, False, False, True]
        tracer.recording = False
        assert other_collectives.window is None
