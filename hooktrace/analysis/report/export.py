"""All ranks in one trace, for Perfetto: ``hooktrace export``.

    Timeline --arrows.py: who passes which bucket on to whom--> phases
             --one rank after another, one event a line-------> file, gzip as it is written

Chrome trace-event JSON, object form, strict.  ``pid`` is the rank, rows are as in a rank's own
file; ``ts`` are microseconds of rank 0's clock since the first event.  The calls of one bucket in
one step are tied by a flow, from the rank that is ready first to the one that is ready last, so
that the length of the arrows is the wait.  A rank whose clock nobody measured says so in its label.

No more than a block of text is held; the columns of the timeline are, about 300 bytes a bucket.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..timeline import STAGE_NAMES, UNKNOWN, Ints, RankClock, RankTrack, Timeline
from .arrows import Arrows, arrows

__all__ = ["Merged", "export"]

_BLOCK = 1 << 20
_ROWS_PER_MODEL = 10_000
_ROWS_PER_OVERLAP = 1_000_000


@dataclass(slots=True)
class Merged:
    """What was written: ranks, slices (events with a duration) and arrows between two ranks."""

    ranks: int = 0
    slices: int = 0
    arrows: int = 0


def export(
    timeline: Timeline, out: Path, *, progress: Callable[[int], None] | None = None
) -> Merged:
    """Write all ranks of a run as one file for Perfetto, compressed where ``out`` ends in ``.gz``.

    ``progress`` is told how many bytes of text have been written.  Raises ``OSError``.
    """
    merged = Merged(ranks=len(timeline.tracks))
    with ExitStack() as stack:
        raw = stack.enter_context(out.open("wb"))
        file: BinaryIO | gzip.GzipFile = raw
        if out.suffix == ".gz":
            file = stack.enter_context(
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=4, mtime=0)
            )
        done, held, parts = 0, 0, []
        for text in _pieces(timeline, merged):
            parts.append(text)
            held += len(text)
            if held >= _BLOCK:
                file.write("".join(parts).encode("ascii"))
                done, held, parts = done + held, 0, []
                if progress is not None:
                    progress(done)
        file.write("".join(parts).encode("ascii"))
    return merged


def _pieces(timeline: Timeline, merged: Merged) -> Iterator[str]:
    run = timeline.run
    other = {
        "run_id": None if run is None else run.run_id,
        "world_size": None if run is None else run.world_size,
        "ranks_with_unknown_clock": timeline.unaligned,
    }
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(other)},"traceEvents":[\n'
    found = arrows(timeline)
    merged.arrows = found.count
    separator = ""
    for i, (track, clock) in enumerate(zip(timeline.tracks, timeline.clocks, strict=True)):
        writer = _RankWriter(track, clock, found, i)
        for event in writer.events():
            yield f"{separator}{event}"
            separator = ",\n"
        merged.slices += writer.slices
    yield "\n]}\n"


@dataclass(slots=True)
class _RankWriter:
    """Events of one rank; remembers where the rows it has named end."""

    track: RankTrack
    clock: RankClock
    arrows: Arrows
    index: int
    slices: int = 0
    _ends: dict[int, int] = field(default_factory=dict)

    def events(self) -> Iterator[str]:
        """Yield the rank's events, each a JSON object; a slice comes before those within it."""
        rank, run = self.track.rank, self.track.trace.run
        name = f"rank {rank}" if run is None else f"rank {rank} ({run.host})"
        known = self.clock.is_known
        yield self._meta("process_name", {"name": name if known else f"{name}, clock unknown"})
        yield self._meta("process_sort_index", {"sort_index": rank})
        if not known:
            yield self._meta("process_labels", {"labels": "clock unknown: placed by wall clock"})
        yield from self._steps()
        yield from self._buckets()
        yield from self._marks()

    def _meta(self, name: str, args: dict[str, object], tid: int = 0) -> str:
        return (
            f'{{"ph":"M","name":"{name}","pid":{self.track.rank},"tid":{tid},'
            f'"args":{json.dumps(args)}}}'
        )

    def _ts(self, common_ns: int) -> str:
        return _us(common_ns - self.arrows.origin_ns)

    def _row(self, model: int, row: int, start: int, end: int) -> tuple[int, list[str]]:
        """Return the tid for a slice, one more where it would overlap, and lines that name it."""
        tid = self.track.rank + 1 + model * _ROWS_PER_MODEL + row
        overlap = 0
        while tid in self._ends and self._ends[tid] > start:
            tid += _ROWS_PER_OVERLAP
            overlap += 1
        lines = []
        if tid not in self._ends:
            title = f"{self.track.models[model][0]}: "
            title += "steps" if row == 0 else f"bucket {row - 1}"
            title += f" (overlap {overlap})" if overlap else ""
            lines = [
                self._meta("thread_name", {"name": title}, tid),
                self._meta("thread_sort_index", {"sort_index": tid}, tid),
            ]
        self._ends[tid] = end
        return tid, lines

    def _slice(self, cat: str, name: str, tid: int, span: tuple[int, int], args: str = "") -> str:
        self.slices += 1
        start, end = span
        return (
            f'{{"cat":"{cat}","ph":"X","name":"{name}","pid":{self.track.rank},"tid":{tid},'
            f'"ts":{self._ts(start)},"dur":{_us(end - start)}{args}}}'
        )

    def _steps(self) -> Iterator[str]:
        steps = self.track.steps
        starts = self.clock.common(steps.first_ready)
        ends = self._ends_of_steps(starts)
        rows = zip(
            *(c.tolist() for c in (steps.model, steps.step, starts, ends, steps.exposed)),
            *(c.tolist() for c in (steps.wire_bytes, steps.gradient_bytes)),
            strict=True,
        )
        for model, step, start, end, exposed, sent, gradients in rows:
            tid, lines = self._row(model, 0, start, end)
            yield from lines
            args = {"gradient_bytes": gradients}
            args |= {"wire_bytes": sent} if sent != UNKNOWN else {}
            args |= {"exposed_ns": exposed} if exposed != UNKNOWN else {}
            text = f',"args":{json.dumps(args)}'
            yield self._slice("step", f"step {step}", tid, (start, end), text)
            if exposed > 0:
                yield self._slice("exposed", "exposed", tid, (max(start, end - exposed), end))
            if exposed != UNKNOWN:
                name = json.dumps(f"{self.track.models[model][0]} exposed")
                yield (
                    f'{{"cat":"counter","ph":"C","name":{name},"pid":{self.track.rank},'
                    f'"ts":{self._ts(start)},"args":{{"ms":{exposed / 1e6:.6g}}}}}'
                )

    def _ends_of_steps(self, starts: Ints) -> Ints:
        """Return when steps end: on a device with their last bucket, as the host does not know."""
        steps, buckets = self.track.steps, self.track.buckets
        ends: Ints = np.maximum(starts + (steps.done - steps.first_ready), starts)
        on_device = np.flatnonzero(buckets.having("device"))
        if len(on_device):
            place = {key: i for i, key in enumerate(zip(steps.model, steps.step, strict=True))}
            later: dict[int, int] = {}
            for row in on_device.tolist():
                i = place.get((buckets.model[row], buckets.step[row]))
                if i is not None:
                    later[i] = max(later.get(i, 0), int(self.arrows.ends[self.index][row]))
            for i, end in later.items():
                ends[i] = max(int(starts[i]), end)
        return ends

    def _buckets(self) -> Iterator[str]:
        buckets, stages = self.track.buckets, self.track.stages
        starts, ends = self.arrows.starts[self.index], self.arrows.ends[self.index]
        shifts = starts - buckets.ready
        names = stages.name.tolist()
        begins, finishes = stages.start.tolist(), stages.end.tolist()
        untimed = buckets.having("untimed").tolist()
        order = np.lexsort((starts, buckets.bucket, buckets.model))
        columns = (
            *(buckets.model, buckets.step, buckets.bucket, buckets.gradient_bytes),
            *(buckets.wire_bytes, starts, ends, shifts, buckets.first_stage, buckets.stages),
            *(self.arrows.phase[self.index], self.arrows.flow[self.index]),
        )
        for row, values in zip(
            order.tolist(), zip(*(c[order].tolist() for c in columns), strict=True), strict=True
        ):
            model, step, bucket, gradients, sent, start, end, shift, first, count, *flow = values
            tid, lines = self._row(model, 1 + bucket, start, end)
            yield from lines
            args = f',"args":{{"step":{step},"gradient_bytes":{gradients}'
            args += f',"wire_bytes":{sent}' if sent != UNKNOWN else ""
            args += ',"times":"of the host; the device\'s are unknown"' if untimed[row] else ""
            yield self._slice("bucket", f"bucket {bucket}", tid, (start, end), args + "}")
            if flow[0]:
                yield self._arrow("?stf"[flow[0]], flow[1], tid, start)
            # An arrow binds to the innermost slice that is open: for one ns only the bucket is.
            cursor = start + 1
            for at in range(first, first + count):
                # Cut to the bucket and to what the stages before left: slices must nest.
                begin = max(cursor, begins[at] + shift)
                finish = min(end, finishes[at] + shift)
                if finish > begin:
                    yield self._slice("stage", STAGE_NAMES[names[at]], tid, (begin, finish))
                    cursor = finish

    def _arrow(self, phase: str, flow: int, tid: int, start: int) -> str:
        bind = "" if phase == "s" else ',"bp":"e"'
        return (
            f'{{"cat":"ranks","ph":"{phase}","name":"same bucket","id":{flow},'
            f'"pid":{self.track.rank},"tid":{tid},"ts":{self._ts(start)}{bind}}}'
        )

    def _marks(self) -> Iterator[str]:
        for record in self.track.trace.anomalies:
            at = int(self.clock.common(np.array([record.time_ns]))[0])
            args = {"message": record.message, "step": record.step, "bucket": record.bucket}
            yield (
                f'{{"cat":"anomaly","ph":"i","s":"p","name":{json.dumps(record.kind)},'
                f'"pid":{self.track.rank},"tid":0,"ts":{self._ts(at)},"args":{json.dumps(args)}}}'
            )


def _us(ns: int) -> str:
    """Return ns, not below 0, as decimal microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"
