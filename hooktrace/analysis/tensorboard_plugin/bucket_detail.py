"""All numbers of one bucket, as a tooltip shows them; texts are plain, escaping is the browser's.

Scene, rank, which --bucket_detail--> sections of (label, value) in the order of reading
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ...records import ErrorRecord, Unit
from ...records.bucket import Parameter
from ...records.units import exact_ms, named_ranks, size, time_text
from ..run import FLAGS, UNKNOWN, delays
from ..run.scene import Bars, Scene
from ..run.waits import PIECES
from .runs import NotThereError

MAX_NAMES = 40
"""Parameter names in a detail; the number of the others is told."""

_MARKS = {
    "device": "times of the device",
    "bounded": "not timed",
}
"""What is told of flags whose names do not say it."""

Rows = list[list[str]]
"""Labels and values."""


def bucket_detail(scene: Scene, rank: int, **named: int) -> dict[str, Any]:
    """Return everything that is known of a rank's bucket.

    ``named``: by its ``row`` in the rank's file, or by ``bucket`` and ``step``.  Raises
    ``NotThereError`` where the rank has none.
    """
    bars = scene.bars
    is_it = np.array(scene.numbers)[bars.rank] == rank
    for name, value in named.items():
        is_it &= getattr(bars, name) == value
    places = np.flatnonzero(is_it)
    if not len(places):
        what = " in ".join(f"{name} {value}" for name, value in named.items())
        raise NotThereError(f"rank {rank} has no {what}")
    return _Bucket(scene, bars.at(places[:1])).detail()


def shape_text(parameter: Parameter) -> str:
    """Return the shape of a parameter, such as ``3 by 4``."""
    return " by ".join(map(str, parameter.shape)) or "scalar"


class _Bucket:
    """A bucket; ``bar``: it alone.  ``row``: in the rank's file."""

    def __init__(self, scene: Scene, bar: Bars) -> None:
        self.scene, self.rank, self.row = scene, int(bar.rank[0]), int(bar.row[0])
        self.track = scene.tracks[self.rank]
        self.columns = self.track.buckets
        self.start, self.end = int(bar.start[0]), int(bar.end[0])
        self.exposed = int(self.columns.exposed[self.row])
        self.facts = self.track.facts[int(self.columns.facts[self.row])]
        self.unit = self.facts.unit
        self.name = str(self.unit or f"bucket {self.columns.bucket[self.row]}")
        self.bound = " at most" if self.columns.having("bounded")[self.row] else ""
        found = scene.pieces(bar)
        kind, took = np.array(PIECES)[found.kind], found.end - found.start
        there = (took > 0) | (kind != "wait")
        columns = (kind, took, self.track.stages.derived[found.row], found.waited > 0)
        self.pieces = [*zip(*(column[there].tolist() for column in columns), strict=True)]
        """Kind, ns, whether it is derived and whether its stage waited, of each piece."""
        wires = found.at(found.kind == PIECES.index("wire"))
        self.waited, self.last = wires.waited, wires.last
        """Of each stage on the wire."""

    def detail(self) -> dict[str, Any]:
        """Return all sections."""
        error, row, columns = self.track.errors.get(self.row), self.row, self.columns
        key = self.scene.model, int(columns.rebuild[row]), int(columns.bucket[row])
        entry = self.track.entries.get(key)
        parameters = entry.parameters if entry is not None else ()
        waiting = self._waiting()
        return {
            "id": row,
            "call": self.name,
            "title": f"{self.name}, step {columns.step[row]}, rank {self.track.rank}",
            "start": self.start,
            "end": self.end,
            "what": self._what(),
            "times": self._times(),
            "stages": self._stage_rows(),
            "spoken": "; ".join(filter(None, (self._spoken(), waiting))),
            "waiting": waiting,
            "bytes": self._bytes(),
            "late": self._lateness(),
            "error": [] if error is None else _error(error, self.unit),
            "worst": [[w.name, _number(w.relative_l2)] for w in (error.worst if error else ())],
            "exception": self.track.exceptions.get(row),
            "parameters": [f"{p.name} ({shape_text(p)})" for p in parameters[:MAX_NAMES]],
            "more_parameters": max(0, len(parameters) - MAX_NAMES),
        }

    def _what(self) -> Rows:
        # Of units all are sharded, and none is the last.
        hidden = ("sharded", "is_last") if self.unit else ()
        bits = self.columns.flags[self.row]
        flags = [name for name, bit in FLAGS.items() if bits & bit and name not in hidden]
        marks = [_MARKS.get(flag, flag.replace("_", " ")) for flag in flags]
        return [
            ["model", self.scene.model],
            ["hook", self.facts.hook],
            ["rebuild", str(self.columns.rebuild[self.row])],
            ["elements", f"{self.facts.numel:,} {self.facts.dtype}"],
            *([["marks", ", ".join(marks)]] if marks else []),
        ]

    def _times(self) -> Rows:
        took, at = exact_ms(self.end - self.start) + self.bound, f"{self.start / 1e9:,.6f} s"
        if self.columns.having("sharded")[self.row]:
            exposed = "not known" if self.exposed == UNKNOWN else exact_ms(self.exposed)
            return [["begun to done", took], ["exposed", exposed], ["begun at", at]]
        call = exact_ms(int(self.columns.launched_after[self.row]))
        return [["ready to done", took], ["hook's call", call], ["ready at", at]]

    def _stage_rows(self) -> list[list[int | str]]:
        """Return kind, name, duration and a note of each stage; a wire that waited is two rows."""
        parts = {"wait": "wire: wait", "wire": "wire: transfer"}
        return [
            [PIECES.index(kind), parts.get(kind, kind) if waited else kind, exact_ms(ns),
             "derived" if derived else ""]
            for kind, ns, derived, waited in self.pieces
        ]  # fmt: skip

    def _bytes(self) -> Rows:
        columns, row = self.columns, self.row
        gradient, wire = int(columns.gradient_bytes[row]), int(columns.wire_bytes[row])
        gathers = self.unit is not None and self.unit.collective == "all_gather"
        found = [["this rank's parameters" if gathers else "gradients", size(gradient)]]
        if wire == UNKNOWN:
            return [*found, ["on the wire", "unknown"]]
        ratio = f" ({gradient / wire:.3g} times less)" if wire and wire != gradient else ""
        found.append(["on the wire", size(wire) + ratio])
        took = sum(ns for kind, ns, *_ in self.pieces if kind == "wire")
        if columns.bus_bytes[row] > 0 and took > 0:
            waits = ", with what it waits" if (self.waited == UNKNOWN).any() else ""
            found.append([f"bus bandwidth{waits}", f"{columns.bus_bytes[row] / took:.3g} GB/s"])
        return found

    def _lateness(self) -> Rows:
        """Return how it came after the other ranks' buckets, and how well that is known."""
        delay = delays(self.scene.run, self.scene.model)[self.rank]
        ns, unsure = int(delay.ns[self.row]), int(delay.unsure[self.row])
        if ns == UNKNOWN:
            return []
        return [["called after the first rank", f"{exact_ms(ns)} (± {exact_ms(unsure)})"]]

    def _spoken(self) -> str:
        """Return who, when and how long, and the stages, the longest first."""
        spent: Counter[str] = Counter()
        for kind, ns, *_ in self.pieces:
            spent["wire" if kind == "wait" else kind] += ns
        total = self.end - self.start
        parts = [time_text(total) + self.bound]
        if self.exposed != UNKNOWN:
            part = "all of it" if self.exposed >= total else time_text(self.exposed)
            parts.append(f"{part} exposed")
        parts += (f"{name} {time_text(ns)}" for name, ns in spent.most_common() if ns > 0)
        step = self.columns.step[self.row]
        return f"rank {self.track.rank}, step {step}, {self.name}: {', '.join(parts)}"

    def _waiting(self) -> str | None:
        """Return what its collectives waited, and for whom; ``None`` where it has none."""
        if not len(self.waited):
            return None
        waits = self.scene.waits
        if (self.waited == UNKNOWN).any():
            why = waits.why_unknown or "its collective was not found on all ranks"
            return f"how much of it is waiting is not known, because {why}"
        if not self.waited.sum():
            is_last = set(self.last.tolist()) == {self.rank}
            why = ": it is the last rank" if is_last else ", as far as is known"
            return f"waits for nobody{why}"
        last = {*self.last[self.waited > 0].tolist()}
        whom = f" for {named_ranks(self.scene.numbers[i] for i in last)}"
        if UNKNOWN in last:
            whom = "; the clocks do not show which rank is last"
            if waits.why_no_clock is not None:
                whom = f"; for which rank is not known, because {waits.why_no_clock}"
        return f"waits {time_text(int(self.waited.sum()))}{whom}"


def _error(error: ErrorRecord, unit: Unit | None) -> Rows:
    against = "the lossless average"
    if unit is not None:
        lossless = {"all_gather": "the parameters", "reduce_scatter": "a lossless reduce-scatter"}
        against = lossless.get(unit.collective, "a lossless all-reduce")
    return [
        ["relative L2", _number(error.relative_l2)],
        ["vNMSE", _number(error.vnmse)],
        ["cosine", _number(error.cosine)],
        ["largest absolute", _number(error.max_absolute)],
        ["flipped signs", _number(error.flipped_share)],
        ["norm of the reference", _number(error.reference_l2)],
        *([["error feedback keeps", _number(error.residual_l2)]] if error.residual_l2 else []),
        ["against", against],
    ]


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4g}"
