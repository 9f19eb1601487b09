"""Texts of the TensorBoard exporter: Markdown tables in which no name becomes markup."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..records import AnomalyRecord, BucketLayout, LayoutRecord, metrics

MAX_ROWS = 200
"""Buckets in a layout table."""
MAX_NAMES = 40
"""Parameter names in a row of a layout table."""

_MEANINGS = (
    ("exposed_ms", metrics.EXPOSED.help),
    ("overlap_ratio", "Share of a step's communication that the backward pass hid."),
    ("step_period_ms", metrics.STEP_PERIOD.help),
    ("busbw_GBps", "Bus bandwidth of a step, as nccl-tests defines it."),
    ("gradient_bytes", "Bytes of gradients that a step gave to the hook."),
    ("wire_bytes", "Bytes of payload that this rank gave to collectives in a step."),
    ("compression_ratio", "Gradient bytes over wire bytes."),
    ("anomalies_total", "How often something went wrong in a hook so far."),
    ("error_bucket*", metrics.BUCKET_ERROR.help),
    ("cosine_bucket*", metrics.BUCKET_COSINE.help),
    ("residual_bucket*", "Norm of what error feedback keeps for the next step."),
    ("arrival_lag_ms", metrics.ARRIVAL_LAG.help),
    ("bucket_ms", metrics.BUCKET_DURATION.help),
    ("stage_*_ms", metrics.STAGE_DURATION.help),
)


def meaning_table() -> str:
    """Return what each tag means."""
    return _table("tag | meaning", [f"{name} | {_escape(text)}" for name, text in _MEANINGS])


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
