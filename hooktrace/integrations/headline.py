"""The few numbers of a run that people follow, as one flat dict; for trackers and loggers.

summary of a model --numbers_of--> {"hooktrace/exposed_seconds": 0.0021, ...}

Names carry units; what is not known is left out.
"""

from __future__ import annotations

from ..records.summary import ModelSummary, percentile

_S = 1e-9


def numbers_of(summary: ModelSummary, prefix: str = "hooktrace/") -> dict[str, float]:
    """Return the numbers of one model.

    Medians over the summary's steps: ``step_seconds``, ``exposed_seconds``, ``exposed_ratio`` (of
    the step), ``overlap_ratio``, ``busbw_bytes_per_second`` and ``error`` (relative L2, of probed
    buckets); of the last step ``gradient_bytes`` and ``wire_bytes``.
    """
    errors = [b.error_p50 for b in summary.buckets if b.error_p50 is not None]
    found = {
        "step_seconds": _seconds(summary.period_p50_ns),
        "exposed_seconds": _seconds(summary.exposed_p50_ns),
        "exposed_ratio": summary.exposed_share,
        "overlap_ratio": summary.overlap_p50,
        "busbw_bytes_per_second": summary.busbw_p50_bytes_per_second,
        "gradient_bytes": summary.gradient_bytes,
        "wire_bytes": summary.wire_bytes,
        "error": percentile(errors, 0.5) if errors else None,
    }
    return {f"{prefix}{name}": float(value) for name, value in found.items() if value is not None}


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns * _S
