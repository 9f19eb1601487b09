"""The ring: order, bound, count."""

from __future__ import annotations

import threading

from hooktrace.staging.ring import Ring


def test_what_does_not_fit_is_counted() -> None:
    """A full ring keeps the oldest entries and counts the others."""
    ring: Ring = Ring(2)
    for entry in range(5):
        ring.push(entry)
    assert len(ring) == 2
    assert ring.dropped == 3
    assert [ring.pop(), ring.pop()] == [0, 1]


def test_many_producers_lose_nothing_uncounted() -> None:
    """Four threads push at once: what is held and what is counted add up."""
    ring: Ring = Ring(1000)

    def produce() -> None:
        for entry in range(2000):
            ring.push(entry)

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ring) + ring.dropped == 8000
    assert 1000 <= len(ring) <= 1000 + len(threads)
