"""Events of one rank: rows, slices, arrows, counters and marks.

Each bucket index has a row of its own, its stages nested in it, and the steps have a row with the
exposed time nested at the end.  Perfetto drops a slice that overlaps another one of its row without
nesting; such a slice goes to a second row.  A device bucket is drawn where its step's first bucket
became ready on the host plus its device times, since no clock ties the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ...records import LayoutRecord, SkewRecord
from ..timeline import STAGE_NAMES, UNKNOWN, Ints, RankClock, RankTrack
from .arrows import Arrows

_ROWS_PER_MODEL = 10_000
_ROWS_PER_OVERLAP = 1_000_000


@dataclass(slots=True)
class RankEvents:
    """Events of one rank; remembers where the rows it has named end.

    ``index``: of the rank in ``arrows``.  ``slices`` counts those that were yielded.
    """

    track: RankTrack
    clock: RankClock
    arrows: Arrows
    index: int
    slices: int = 0
    _ends: dict[int, int] = field(default_factory=dict)

    def events(self) -> Iterator[str]:
        """Yield the rank's events, each a JSON object; a slice comes before those within it."""
        rank, run = self.track.rank, self.track.records.run
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
        tid = self._first_row(model) + row
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

    def _instant(self, cat: str, name: str, tid: int, common_ns: int, args: str = "") -> str:
        scope = "t" if tid else "p"  # of the row, or of all rows of the rank
        return (
            f'{{"cat":"{cat}","ph":"i","s":"{scope}","name":{json.dumps(name)},'
            f'"pid":{self.track.rank},"tid":{tid},"ts":{self._ts(common_ns)}{args}}}'
        )

    def _counter(self, model: int, name: str, unit: str, common_ns: int, value: float) -> str:
        title = json.dumps(f"{self.track.models[model][0]} {name}")
        return (
            f'{{"cat":"counter","ph":"C","name":{title},"pid":{self.track.rank},'
            f'"ts":{self._ts(common_ns)},"args":{{"{unit}":{value:.6g}}}}}'
        )

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
        is_known = (steps.bus_bytes != UNKNOWN) & (steps.wire_busy > 0)
        busbw = np.where(is_known, steps.bus_bytes / np.where(is_known, steps.wire_busy, 1), 0.0)
        rows = zip(
            *(c.tolist() for c in (steps.model, steps.step, starts, ends, steps.exposed)),
            *(c.tolist() for c in (steps.wire_bytes, steps.gradient_bytes)),
            *(c.tolist() for c in (steps.last_ready - steps.first_ready, busbw)),
            strict=True,
        )
        for model, step, start, end, exposed, sent, gradients, last_ready, rate in rows:
            tid, lines = self._row(model, 0, start, end)
            yield from lines
            args = {"gradient_bytes": gradients}
            args |= {"wire_bytes": sent} if sent != UNKNOWN else {}
            args |= {"exposed_ns": exposed} if exposed != UNKNOWN else {}
            text = f',"args":{json.dumps(args)}'
            yield self._slice("step", f"step {step}", tid, (start, end), text)
            if exposed > 0:
                yield self._slice("exposed", "exposed", tid, (max(start, end - exposed), end))
            if 0 <= last_ready <= end - start:
                yield self._instant("mark", "last bucket ready", tid, start + last_ready)
            if exposed != UNKNOWN:
                yield self._counter(model, "exposed", "ms", start, exposed / 1e6)
            if rate:
                yield self._counter(model, "busbw", "GB/s", start, rate)

    def _ends_of_steps(self, starts: Ints) -> Ints:
        """Return when steps end: on a device with their last bucket, as the host does not know."""
        steps, buckets = self.track.steps, self.track.buckets
        ends: Ints = np.maximum(starts + (steps.done - steps.first_ready), starts)
        on_device = np.flatnonzero(buckets.having("device"))
        if len(on_device):
            place = {key: i for i, key in enumerate(zip(steps.model, steps.step, strict=True))}
            later: dict[int, int] = {}
            keys = zip(buckets.model[on_device], buckets.step[on_device], strict=True)
            for row, key in zip(on_device.tolist(), keys, strict=True):
                i = place.get(key)
                if i is not None:
                    later[i] = max(later.get(i, 0), int(self.arrows.ends[self.index][row]))
            for i, end in later.items():
                ends[i] = max(int(starts[i]), end)
        return ends

    def _buckets(self) -> Iterator[str]:
        buckets, stages = self.track.buckets, self.track.stages
        starts, ends = self.arrows.starts[self.index], self.arrows.ends[self.index]
        names = stages.name.tolist()
        kinds = ["derived" if derived else "stage" for derived in stages.derived.tolist()]
        begins, finishes = stages.start.tolist(), stages.end.tolist()
        untimed = buckets.having("untimed").tolist()
        errors = {
            row: f"error {error.relative_l2:.3g}"
            for row, error in self.track.errors.items()
            if error.relative_l2 is not None
        }
        order = np.lexsort((starts, buckets.bucket, buckets.model))
        columns = (
            *(buckets.model, buckets.step, buckets.bucket, buckets.gradient_bytes),
            *(buckets.wire_bytes, starts, ends, buckets.first_stage, buckets.stages),
            *(self.arrows.phase[self.index], self.arrows.flow[self.index]),
        )
        for row, values in zip(
            order.tolist(), zip(*(c[order].tolist() for c in columns), strict=True), strict=True
        ):
            model, step, bucket, gradients, sent, start, end, first, count, *flow = values
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
                begin = max(cursor, start + begins[at])
                finish = min(end, start + finishes[at])
                if finish > begin:
                    yield self._slice(kinds[at], STAGE_NAMES[names[at]], tid, (begin, finish))
                    cursor = finish
            if row in errors:
                yield self._instant("mark", errors[row], tid, end)

    def _arrow(self, phase: str, flow: int, tid: int, start: int) -> str:
        bind = "" if phase == "s" else ',"bp":"e"'
        return (
            f'{{"cat":"ranks","ph":"{phase}","name":"same bucket","id":{flow},'
            f'"pid":{self.track.rank},"tid":{tid},"ts":{self._ts(start)}{bind}}}'
        )

    def _marks(self) -> Iterator[str]:
        records = self.track.records
        for anomaly in records.anomalies:
            args = {"message": anomaly.message, "step": anomaly.step, "bucket": anomaly.bucket}
            text = f',"args":{json.dumps(args)}'
            yield self._instant("anomaly", anomaly.kind, 0, self._common(anomaly.time_ns), text)
        for layout in records.layouts:
            name = f"bucket layout, generation {layout.generation}"
            yield from self._mark_of_model("layout", name, layout)
        for skew in records.skews:
            name = f"bucket {skew.bucket}: ready {skew.lag_ns / 1e6:.3f} ms after the first rank"
            yield from self._mark_of_model("skew", name, skew)

    def _mark_of_model(
        self, cat: str, name: str, record: LayoutRecord | SkewRecord
    ) -> Iterator[str]:
        """Yield an instant on the row of a model's steps, where there is one."""
        model = (record.model, record.hook)
        if model not in self.track.models:
            return
        tid = self._first_row(self.track.models.index(model))
        if tid in self._ends:
            # The layout of a removed part may be older than all that is drawn.
            at = max(self._common(record.time_ns), self.arrows.origin_ns)
            yield self._instant(cat, name, tid, at)

    def _common(self, host_ns: int) -> int:
        return int(self.clock.common(np.array([host_ns]))[0])

    def _first_row(self, model: int) -> int:
        # Perfetto shows threads in the order of their tids.  They start above the pid: a thread
        # whose tid is its pid counts as the process's main thread.
        return self.track.rank + 1 + model * _ROWS_PER_MODEL


def _us(ns: int) -> str:
    """Return ns, not below 0, as decimal microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"
