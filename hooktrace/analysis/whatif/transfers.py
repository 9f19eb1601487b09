"""How long collectives of a run had the wire: those that were on it at once, together.

    wire stages of all ranks --waits--> transfers: from the last rank's beginning to the end
        --those that overlap--> busy periods of the wire: their collectives, and how long
        --the same collectives in many steps--> BusyPeriods (ranks and steps, compositions)

Two transfers at once share the link, and who gets which part of it when is the transport's affair
(gloo sends both over one connection).  So that this does not read as a slower link, only what they
take together is looked at: a busy period carries the sum of their bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...records.errors import UsageError
from ..timeline import Ints, RankTrack, Timeline, wire_waits
from .hook_rules import Sent
from .work import Floats

_Composition = tuple[Sent, ...]
_LEAST_SHARE = 0.1
"""Of a run's steps: what is together less often is left out."""


@dataclass(frozen=True, slots=True)
class BusyPeriods:
    """Times with something on the wire: ``ns`` (ranks and steps, compositions), NaN where not.

    ``compositions``: which collectives were on the wire together, in the order in which they began.
    """

    compositions: tuple[_Composition, ...]
    ns: Floats


def busy_periods(
    timeline: Timeline, model: str, steps: Ints, generation: int, sent: Mapping[int, list[Sent]]
) -> BusyPeriods:
    """Return the busy periods of some steps; ``sent``: by bucket, what its rounds send.

    Raises ``UsageError`` where nobody knows what of a collective is waiting.
    """
    waits = wire_waits(timeline, model)
    if waits.why_unknown is not None:
        raise UsageError(
            f"what of a collective is transfer is not known: {waits.why_unknown}; read the files "
            "of all ranks of a run whose hook is staged"
        )
    rows: list[dict[_Composition, float]] = []
    for track, own, ns in zip(timeline.tracks, waits.rows, waits.ns, strict=True):
        wires = _Wires(track, own, ns, generation)
        rows += wires.periods(steps, sent).values()
    counts = Counter(composition for row in rows for composition in row)
    often = [one for one, count in counts.items() if count >= _LEAST_SHARE * len(rows)]
    found = np.array([[row.get(one, np.nan) for one in often] for row in rows])
    return BusyPeriods(tuple(often), found.reshape(len(rows), len(often)))


class _Wires:
    """The transfers of one rank, in the order in which they began."""

    def __init__(self, track: RankTrack, rows: Ints, waited: Ints, generation: int) -> None:
        columns, of = track.buckets, track.bucket_of_stages()[rows]
        first = np.flatnonzero(np.diff(of, prepend=-1))
        turn = np.arange(len(of)) - np.repeat(first, np.diff(np.append(first, len(of))))
        begin = columns.ready[of] + track.stages.start[rows] + np.maximum(waited, 0)
        order = np.argsort(begin, kind="stable")
        self._step = np.where(columns.generation[of] == generation, columns.step[of], -1)[order]
        self._bucket, self._turn = columns.bucket[of][order], turn[order]
        self._begin = begin[order]
        self._end = np.maximum(columns.ready[of] + track.stages.end[rows], begin)[order]

    def periods(
        self, steps: Ints, sent: Mapping[int, list[Sent]]
    ) -> dict[int, dict[_Composition, float]]:
        """Return by step how long each composition had the wire.

        What nobody knows the bytes of leaves its whole step out.
        """
        found: dict[int, dict[_Composition, float]] = {int(step): {} for step in steps}
        for first, last in self._together():
            step = int(self._step[first])
            of = found.get(step)
            if of is None:
                continue
            own = [
                (sent.get(bucket) or [])[turn : turn + 1]
                for bucket, turn in zip(
                    self._bucket[first:last].tolist(), self._turn[first:last].tolist(), strict=True
                )
            ]
            if not all(own):
                del found[step]
                continue
            composition = tuple(one for (one,) in own)
            of[composition] = float(self._end[first:last].max() - self._begin[first])
        return found

    def _together(self) -> list[tuple[int, int]]:
        """Return where each busy period begins and ends."""
        if not len(self._begin):
            return []
        over = np.maximum.accumulate(self._end)[:-1] < self._begin[1:]
        apart = over | (np.diff(self._step) != 0)
        edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(self._begin)]
        return list(pairwise(edges))
