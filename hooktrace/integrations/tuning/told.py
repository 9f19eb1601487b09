"""What the records of hooks that take turns say of each, as an exporter of their tracer.

Batch --label of each step--> medians of exposed time and bytes, the largest error, what failed
--> record files, a folder a label, where they are kept
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from ...records import AnomalyRecord, Batch

if TYPE_CHECKING:
    from ...exporters.base import Exporter
    from ...records.step import CompletedStep


class Told:
    """An exporter; ``label_of`` a step says whose it was, ``files`` keep all records, by label."""

    measures_the_job = True
    """So that it is used where the script's own exporters are not (``tracing/redirected.py``)."""

    def __init__(self, label_of: Callable[[int], str], files: Mapping[str, Exporter]) -> None:
        self._label_of, self._files = label_of, files
        self._exposed: dict[str, list[int]] = defaultdict(list)
        self._sent: dict[str, list[int]] = defaultdict(list)
        self._errors: dict[str, list[float]] = defaultdict(list)
        self._failed: dict[str, tuple[bool, str]] = {}

    def export(self, batch: Batch) -> None:
        """Take what counts of it."""
        by_label: dict[str, list[CompletedStep]] = defaultdict(list)
        stages = {(one.step, one.bucket): one.stage for one in batch.of(AnomalyRecord)}
        for whole in batch.steps:
            label = self._label_of(whole[0].step)
            by_label[label].append(whole)
            self._take(label, whole, stages)
        for label, file in self._files.items():
            if batch.records or label in by_label:
                file.export(msgspec.structs.replace(batch, steps=tuple(by_label[label])))

    def _take(
        self, label: str, whole: CompletedStep, stages: Mapping[tuple[int, int], str]
    ) -> None:
        step, buckets = whole
        for bucket in buckets:
            if bucket.exception is not None:
                in_wire = stages.get((bucket.step, bucket.bucket)) == "wire"
                self._failed.setdefault(label, (in_wire, bucket.exception))
            if bucket.error is not None and bucket.error.relative_l2 is not None:
                self._errors[label].append(bucket.error.relative_l2)
        if not step.complete or step.warmup or step.probed:
            return
        if step.exposed_ns is not None:
            self._exposed[label].append(step.exposed_ns)
        if step.wire_bytes is not None:
            self._sent[label].append(step.wire_bytes)

    def close(self) -> None:
        """Write out what the files hold."""
        for file in self._files.values():
            file.close()

    def of(self, label: str) -> dict[str, Any]:
        """Return what is known of a hook.

        Exposed time, ns, and bytes of a step: medians.  ``error``: relative L2, the largest of a
        bucket.  ``failed``: what its first failure was, and whether in a collective.
        """
        exposed, sent = self._exposed[label], self._sent[label]
        return {
            "exposed_ns": median(exposed) if exposed else None,
            "wire_bytes": median(sent) if sent else None,
            "error": max(self._errors[label], default=None),
            "failed": self._failed.get(label),
        }
