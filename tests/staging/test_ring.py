"""The ring: order, bound, count."""

from __future__ import annotations

import threading
from unittest import mock

from hooktrace.staging.calls import BucketCall, StepCalls
from hooktrace.staging.ring import Ring
from hooktrace.staging.slots import ModelState


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
    """What does not fit is dropped as a whole; others take one."""
    ring = Ring(10)
    for number in range(3):
        ring.push(StepCalls(number, 4))
    assert (len(ring), ring.filled, ring.dropped) == (3, 12, 0)
    assert ring.pop() is not None
    ring.push("a result")
    ring.push("another one")
    ring.push("what does not fit")
    assert (len(ring), ring.filled, ring.dropped) == (4, 10, 1)


def test_the_calls_of_steps_that_were_dropped_are_counted_when_they_have_come() -> None:
    """Not before: a counter never falls; of the last step at the tracer's end."""
    ring, model = Ring(1), ModelState("net", "hook", 0)
    model.slots = dict.fromkeys(range(5), mock.Mock())
    ring.push("a record")
    seen = []
    for step, calls in enumerate((10, 1, 3)):
        for number in range(calls):
            call = BucketCall(mock.Mock(), step, 0, mock.Mock())
            if number:
                model.calls.append(call)
            else:
                model.begin_step(call, ring)
            seen.append(ring.dropped)
    model.let_go_of_lost(ring)
    assert seen == sorted(seen)
    assert ring.dropped == 14
