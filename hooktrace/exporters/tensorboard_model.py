"""What TensorBoard shows of one model: scalars, histograms of a window of steps, tables.

StepRecord, buckets, lags, anomalies --ModelSeries--> events of an EventFile

Tables are Markdown in which no name becomes markup.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..records import (
    AnomalyRecord,
    BucketLayout,
    BucketRecord,
    HangRecord,
    LayoutRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
    metrics,
)
from ..records.units import listed
from .tensorboard_tags import MEANINGS, group_of, tag_of

if TYPE_CHECKING:
    from .event_file import EventFile

MAX_WAITING = 4096
"""Lags whose steps have not come."""
MAX_ANOMALIES = 50
"""Anomalies in a text; the total stands above them."""
MAX_HANGS = 20
"""Records of hangs in a text, two of one that went on."""
MAX_ROWS = 200
"""Buckets in a layout table."""
MAX_NAMES = 40
"""Parameter names in a row of a layout table."""


class ModelSeries:
    """Writes one model's events; what is remembered between exports is bounded."""

    def __init__(self, file: EventFile, run: RunInfo, name: str) -> None:
        self._file = file
        self._run = run
        self._group = group_of(name)
        self._timed_steps = 0
        self._due = -1  # the last step with scalars, whose period the next one knows
        self._durations_ns: defaultdict[str, array[int]] = defaultdict(partial(array, "q"))
        self._window_end = (0, 0)
        self._skews: deque[SkewRecord] = deque(maxlen=MAX_WAITING)
        self._anomalies: deque[AnomalyRecord] = deque(maxlen=MAX_ANOMALIES)
        self._anomaly_count = 0
        self._anomalies_written = 0
        self._anomaly_step = 0
        self._hangs: deque[HangRecord] = deque(maxlen=MAX_HANGS)

    def step(
        self,
        step: StepRecord,
        buckets: tuple[BucketRecord, ...],
        scalar_every: int,
        histogram_every: int,
    ) -> None:
        """Write what is due of a step; both intervals are in timed steps."""
        wall_ns = self._run.wall_ns(step.done_ns)
        if self._due == step.step - 1 and step.previous_period_ns is not None:
            period = [(self._tag("step_period_ms"), step.previous_period_ns / 1e6)]
            self._file.scalars(self._due, wall_ns, period)
        if sampled := [*self._errors(buckets), *self._lag(step.step)]:
            self._file.scalars(step.step, wall_ns, sampled)
        if not step.settled:
            return
        # What an opaque hook sends is known of few steps: none of them is left out.
        if self._timed_steps % scalar_every == 0 or step.sent is not None:
            self._file.scalars(step.step, wall_ns, self._scalars(step))
            self._due = step.step if step.counts else -1
        if not step.counts:
            return
        self._timed_steps += 1
        self._window_end = (step.step, wall_ns)
        self._collect(buckets)
        if self._timed_steps % histogram_every == 0:
            self.write_histograms()

    def _tag(self, name: str) -> str:
        return tag_of(self._group, name)

    def _scalars(self, step: StepRecord) -> Iterator[tuple[str, float]]:
        times = (
            ("exposed_ms", step.exposed_ns, 1e6),
            ("overlap_ratio", step.overlap_ratio, 1),
            ("busbw_GBps", step.busbw_bytes_per_second, 1e9),
        )
        sizes = (
            ("gradient_bytes", step.gradient_bytes, 1),
            ("wire_bytes", step.wire_bytes, 1),
            ("compression_ratio", step.compression_ratio, 1),
        )
        for name, value, unit in (*times, *sizes) if step.counts else sizes:
            if value is not None:
                yield self._tag(name), value / unit

    def _errors(self, buckets: tuple[BucketRecord, ...]) -> Iterator[tuple[str, float]]:
        for bucket in buckets:
            if bucket.error is None or bucket.shadow or bucket.bucket >= metrics.MAX_BUCKET_LABELS:
                continue
            for name, value in (
                ("error", bucket.error.relative_l2),
                ("cosine", bucket.error.cosine),
                ("residual", bucket.error.residual_l2),
            ):
                if value is not None:
                    yield self._tag(f"{name}_bucket{bucket.bucket}"), value

    def expect(self, skew: SkewRecord) -> None:
        """Remember a lag: TensorBoard takes a step that goes back for a restart, so it waits."""
        if skew.uncertainty_ns is not None:
            self._skews.append(skew)

    def _lag(self, step: int) -> Iterator[tuple[str, float]]:
        """Yield the largest lag of a step's probed buckets."""
        lags = [skew.lag_ns for skew in self._skews if skew.step == step]
        if lags:
            yield self._tag("arrival_lag_ms"), max(lags) / 1e6
        while self._skews and self._skews[0].step <= step:
            self._skews.popleft()

    def _collect(self, buckets: Iterable[BucketRecord]) -> None:
        """Take the durations of timed buckets and of their stages into the window."""
        windows = self._durations_ns
        for bucket in buckets:
            duration = bucket.duration_ns
            if duration is not None and bucket.exception is None:
                windows["bucket"].append(duration)
                for name, ns in bucket.stage_totals_ns().items():
                    windows[name].append(ns)

    def write_histograms(self) -> None:
        """Write the window's histograms and begin the next window."""
        step, wall_ns = self._window_end
        for name, values in self._durations_ns.items():
            tag = self._tag("bucket_ms" if name == "bucket" else f"stage_{name}_ms")
            self._file.histogram(step, wall_ns, tag, values)
        self._durations_ns.clear()

    def write_layout(self, layout: LayoutRecord) -> None:
        """Write a layout's table."""
        wall_ns = self._run.wall_ns(layout.time_ns)
        self._file.text(layout.step, wall_ns, self._tag("layout"), layout_table(layout))

    def take(self, record: AnomalyRecord | HangRecord) -> None:
        """Remember an anomaly for the next table; write that of hangs with one more line."""
        if isinstance(record, HangRecord):
            self._hang(record)
        else:
            self._anomaly(record)

    def _anomaly(self, anomaly: AnomalyRecord) -> None:
        self._anomalies.append(anomaly)
        self._anomaly_count += 1
        self._anomaly_step = max(self._anomaly_step, anomaly.step)

    def write_anomalies(self, *, last: bool = False) -> None:
        """Write the table when a quarter more have come than it had, so that it stays bounded."""
        count, written = self._anomaly_count, self._anomalies_written
        if count <= written + (0 if last else written // 4):
            return
        self._anomalies_written = count
        step, wall_ns = self._anomaly_step, self._run.wall_ns(self._anomalies[-1].time_ns)
        self._file.text(
            step, wall_ns, self._tag("anomalies"), anomaly_table(self._anomalies, count)
        )
        self._file.scalars(step, wall_ns, [(self._tag("anomalies_total"), count)])

    def _hang(self, hang: HangRecord) -> None:
        self._hangs.append(hang)
        wall_ns = hang.since_wall_ns + (hang.ended_after_ns or 0)
        self._file.text(hang.step, wall_ns, self._tag("hangs"), hang_table(self._hangs))


def meaning_table() -> str:
    """Return what each tag means."""
    return _table("tag | meaning", [f"{name} | {_escape(text)}" for name, text in MEANINGS])


# An underscore inside a word is the only punctuation common in names that Markdown leaves alone.
_MARKUP = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|[^A-Za-z0-9 ._-]")


def _escape(text: str) -> str:
    """Return ``text`` so that neither Markdown nor HTML reads markup in it."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)


def _table(head: str, rows: list[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join([head, "|".join(["---"] * columns), *rows])


def _parameters(entry: BucketLayout) -> str:
    named = [
        f"{_escape(name)} ({'x'.join(map(str, shape)) or 'scalar'})"
        for name, shape in entry.parameters[:MAX_NAMES]
    ]
    more = len(entry.parameters) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def layout_table(layout: LayoutRecord) -> str:
    """Return the buckets of a generation and their parameters, long lists cut."""
    total = sum(entry.gradient_bytes for entry in layout.buckets)
    rows = [
        f"{entry.bucket} | {_escape(entry.dtype)} | {_escape(entry.device_type)} | {entry.numel}"
        f" | {entry.gradient_bytes} | {len(entry.parameters)} | {_parameters(entry)}"
        for entry in layout.buckets[:MAX_ROWS]
    ]
    more = len(layout.buckets) - len(rows)
    return (
        f"**Generation {layout.generation}**: {len(layout.buckets)} buckets, {total} bytes of "
        f"gradients, hook {_escape(layout.hook)}\n\n"
        + _table("bucket | dtype | device | elements | bytes | parameters | names (shapes)", rows)
        + (f"\n\n{more} more buckets are not shown." if more else "")
    )


def anomaly_table(anomalies: Sequence[AnomalyRecord], total: int) -> str:
    """Return the latest of ``total`` anomalies, the last one first."""
    rows = [
        f"{a.step} | {a.generation} | {a.bucket} | {_escape(a.stage)} | {_escape(a.kind)}"
        f" | {_escape(a.message)}"
        for a in reversed(anomalies)
    ]
    return f"**{total} anomalies**, the latest {len(rows)} first\n\n" + _table(
        "step | generation | bucket | stage | kind | message", rows
    )


def hang_table(hangs: Sequence[HangRecord]) -> str:
    """Return the latest records of hangs, the last one first."""
    rows = [
        f"{h.step} | {h.bucket} | {_escape(h.kind)} | {listed(h.waiting)} | {listed(h.ranks)}"
        f" | {'yes' if h.ended_after_ns is not None else 'no'} | {_escape(h.message)}"
        for h in reversed(hangs)
    ]
    return f"**Hangs**, the latest {len(rows)} first\n\n" + _table(
        "step | bucket | kind | ranks that wait | for rank | over | message", rows
    )
