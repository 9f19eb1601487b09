"""How long a device's computing stream waited for each of a sharded model's collectives.

    spans of the calls that one wait is for, and its begin --exposed_of--> ns of each

A wait begins where the computing stream comes to it, and goes on until the last of the calls that
it is for has ended.  What is *exposed* of a call is the time in which it was under way, from its
begin to its end on FSDP's stream, during its wait; where several are under way in one wait, as at
the end of a backward pass, that time is of the one that ends first.  So no time of a
step is counted twice, no call exposes more than it takes, and a step's sum is at most what its
computing stream stood still for.

The rest of a wait is of no call: what FSDP copies and divides around its collectives.
"""

from __future__ import annotations

from collections.abc import Sequence


def exposed_of(spans: Sequence[tuple[int, int]], wait: int) -> list[int]:
    """Return what each call exposes, ns; ``spans``: begin and end of each, one clock's ns.

    >>> exposed_of([(0, 40), (20, 90), (90, 100)], 30)
    [10, 50, 10]
    >>> exposed_of([(0, 40), (50, 60)], 70)
    [0, 0]
    >>> exposed_of([(50, 60), (40, 100)], 30)
    [10, 50]
    """
    exposed = [0] * len(spans)
    counted: list[tuple[int, int]] = []  # in order, and apart
    for i in sorted(range(len(spans)), key=lambda i: spans[i][1]):
        begin, end = max(spans[i][0], wait), spans[i][1]
        left, first = end - begin, begin
        if left <= 0:
            continue
        while counted and counted[-1][1] > begin:
            start, until = counted.pop()
            left -= until - max(start, begin)
            first = min(first, start)
        counted.append((first, end))
        exposed[i] = left
    return exposed
