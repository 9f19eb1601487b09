"""Interval arithmetic: the one place where the words exposed, busy and queue get their meaning.

Every exporter, report and test takes these definitions from here.  Times are integer nanoseconds
of one clock; which clock is the caller's business.  Nothing here imports torch.

- *exposed*: ``max(all done) - max(last bucket ready, end of backward)``, never below 0.  The
  communication that the backward pass could not hide.  What the last bucket's hook itself takes, on
  the thread that computes the gradients, is no part of backward: its end counts less that.
- *busy*: length of the union of the buckets' ``[ready, done]``.
- *overlap ratio*: ``1 - exposed / busy``.
- *queue model*: a backend is a first-in-first-out server with W workers; a collective starts at
  its launch or when fewer than W earlier collectives hold a worker, whichever is later.
- *bus bandwidth*: as nccl-tests defines it, ``bytes / time`` times a factor for the collective.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length in ns of the union of closed ``(start, end)`` intervals.

    Intervals may overlap, touch and come in any order; an empty input gives 0.

    >>> union_ns([(0, 10), (5, 20), (30, 31)])
    21
    """
    total = 0
    covered_to: int | None = None
    for start, end in sorted(intervals):
        if covered_to is None or start > covered_to:
            total += end - start
            covered_to = end
        elif end > covered_to:
            total += end - covered_to
            covered_to = end
    return total


def exposed_ns(hidden_to_ns: int, all_done_ns: int) -> int:
    """Return the communication that backward did not hide, in ns: never below 0.

    ``hidden_to_ns`` is when the last bucket's hook was called, or backward ended, whichever came
    later; ``all_done_ns`` when the last of all buckets was done.
    """
    return max(0, all_done_ns - hidden_to_ns)


def overlap_ratio(exposed: int, busy: int) -> float:
    """Return ``1 - exposed / busy``: 1 is all hidden, 0 is all exposed; 1.0 when nothing ran."""
    return 1.0 if busy <= 0 else 1.0 - exposed / busy


def fifo_starts(
    launches: Sequence[int],
    dones: Sequence[int],
    workers: int,
    *,
    freed: Sequence[int] | None = None,
) -> list[int]:
    """Return when each collective started on a FIFO backend with ``workers`` workers, in ns.

    ``launches`` must be in ascending order (the order in which the backend got them) and
    ``dones[i]`` and ``freed[i]`` belong to ``launches[i]``: when the collective was done, and when
    its worker could take another one, which is the same unless ``freed`` says otherwise.  A
    collective starts when fewer than ``workers`` of the earlier ones hold a worker, which is the
    moment of the ``workers``-th largest of the times at which they let go.  Collectives that the
    caller did not see can hold a worker too; then the true start is later than the one returned.

    >>> fifo_starts([0, 1, 2], [10, 20, 30], workers=2)
    [0, 1, 10]
    >>> fifo_starts([0, 1, 2], [10, 20, 30], workers=2, freed=[15, 20, 30])
    [0, 1, 15]
    """
    if workers < 1:
        raise ValueError(f"a backend has at least 1 worker, not {workers}")
    latest: list[int] = []  # min-heap of the `workers` largest times so far at which one was free
    starts: list[int] = []
    for launch, done, free in zip(launches, dones, freed or dones, strict=True):
        if len(latest) < workers:
            starts.append(launch)
            heapq.heappush(latest, free)
        else:
            # A start after its own completion would be a negative wire time; it means that the
            # stamps of two worker threads crossed, so the completion is the better bound.
            starts.append(min(max(launch, latest[0]), done))
            heapq.heappushpop(latest, free)
    return starts


def bus_bytes(collective: str, wire_bytes: int, group_size: int) -> float | None:
    """Return the bytes that bus bandwidth counts for one collective, as nccl-tests defines it.

    ``collective`` is an operation's ``kind``, ``wire_bytes`` one rank's payload and
    ``group_size`` the number n of ranks.  Bus bandwidth is this over the time: the size times
    ``2(n-1)/n`` for all-reduce, ``(n-1)/n`` for all-gather (whose size is the whole output,
    n payloads), reduce-scatter and all-to-all, 1 for broadcast and send-receive.  ``None`` for a
    collective that nccl-tests does not define.
    """
    factor = _BUS_FACTORS.get(collective)
    return None if factor is None else wire_bytes * factor(group_size)


_BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: n - 1.0,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}
