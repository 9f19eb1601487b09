"""From a sample of a histogram to the span that it is from.

    a bucket that got a span --keep--> Exemplars --since: asked by a reader--> data points

Of each series the last one within each bound is kept, so that a slow bucket's stays findable among
fast ones.  Importing this imports opentelemetry.
"""

from __future__ import annotations

import time
from bisect import bisect_left

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.trace import SpanContext

from ..records import BucketRecord
from ..records.metrics import BUCKET_DURATION, bucket_label
from .observations import Labels


class Exemplars:
    """Of the durations of buckets; written by the drain, read by the readers' threads."""

    def __init__(self) -> None:
        self._found: dict[Labels, dict[int, tuple[int, Exemplar]]] = {}

    def keep(self, bucket: BucketRecord, span: SpanContext, wall_ns: int) -> None:
        """Keep where a bucket that the histogram counts is shown, if a backend gets that span."""
        if (
            bucket.unit is not None
            or bucket.duration_ns is None
            or bucket.exception is not None
            or not span.trace_flags.sampled
        ):
            return
        seconds = bucket.duration_ns / 1e9
        labels = bucket.model, bucket.hook, bucket_label(bucket.bucket)
        exemplar = Exemplar({}, seconds, wall_ns, span.span_id, span.trace_id)
        bound = bisect_left(BUCKET_DURATION.buckets, seconds)
        self._found.setdefault(labels, {})[bound] = time.time_ns(), exemplar

    def since(self, labels: Labels, ns: int) -> list[Exemplar]:
        """Return those of a series that were kept after a moment of ``time.time_ns``."""
        kept = list(self._found.get(labels, {}).values())
        return [exemplar for at_ns, exemplar in kept if at_ns > ns]
