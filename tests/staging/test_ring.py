"""The ring: order, bound, count."""

from __future__ import annotations

import threading

from hooktrace.staging.calls import StepCalls
from hooktrace.staging.ring import Ring


def test_many_producers_lose_nothing_uncounted() -> None:
    """A full ring keeps the oldest entries, and what it holds and counts adds up."""
    ring = Ring(1000)
    ring.push("oldest")
    producers = [
        threading.Thread(target=lambda: [ring.push(n) for n in range(2000)]) for _ in range(4)
    ]
    for thread in producers:
        thread.start()
    for thread in producers:
        thread.join()
    assert len(ring) + ring.dropped == 8001
    assert 1000 <= len(ring) <= 1000 + len(producers)
    assert ring.pop() == "oldest"


def test_a_step_takes_the_room_of_its_calls() -> None:
    """What does not fit is dropped as a whole, and all its calls are counted."""
    ring = Ring(10)
    for number in range(4):
        ring.push(StepCalls(number, 4))
    assert (len(ring), ring.dropped) == (3, 4)
