"""TensorBoard's texts: tables in Markdown in which no name becomes markup.

AssignmentRecord, AnomalyRecord --..._table--> text
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..records import AnomalyRecord, AssignmentRecord, BucketLayout

MAX_ROWS = 200
"""Buckets in a layout table."""
MAX_NAMES = 40
"""Parameter names in a row of a layout table."""


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
        f"{_escape(one.name)} ({'x'.join(map(str, one.shape)) or 'scalar'})"
        for one in entry.parameters[:MAX_NAMES]
    ]
    more = len(entry.parameters) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def assignment_table(layout: AssignmentRecord) -> str:
    """Return a rebuild's buckets, or a sharded model's collectives, with their parameters.

    Collectives are those so far, in the order of their first call; long lists are cut.
    """
    entries, hook = layout.buckets, _escape(layout.hook)
    units = {entry.unit.name for entry in entries if entry.unit is not None}
    if units:
        kind, columns = "collectives", "unit | collective | phase | call of the step"
        head = (
            f"**{len(units)} units**, with {len(entries)} different collectives so far, hook "
            f"{hook}. Of an all-gather elements and bytes are this rank's parameters."
        )
    else:
        kind, columns = "buckets", "bucket"
        total = sum(entry.gradient_bytes for entry in entries)
        head = (
            f"**Rebuild {layout.rebuild}**: {len(entries)} buckets, {total} bytes of "
            f"gradients, hook {hook}"
        )
    rows = [
        f"{_name(entry)} | {_escape(entry.dtype)} | {_escape(entry.device_type)} | {entry.numel}"
        f" | {entry.gradient_bytes} | {len(entry.parameters)} | {_parameters(entry)}"
        for entry in entries[:MAX_ROWS]
    ]
    more = len(entries) - len(rows)
    columns += " | dtype | device | elements | bytes | parameters | names (shapes)"
    cut = f"\n\n{more} more {kind} are not shown." if more else ""
    return f"{head}\n\n{_table(columns, rows)}{cut}"


def _name(entry: BucketLayout) -> str:
    """Return the first cells of a row: which bucket, or which collective of which unit."""
    unit = entry.unit
    if unit is None:
        return str(entry.bucket)
    collective = _escape(unit.collective.replace("_", "-"))
    return f"{_escape(unit.name)} | {collective} | {unit.phase} | {unit.repeat + 1}"


def anomaly_table(anomalies: Sequence[AnomalyRecord], total: int) -> str:
    """Return the latest of ``total`` anomalies, the last one first."""
    rows = [
        f"{a.step} | {a.rebuild} | {a.bucket} | {_escape(a.stage)} | {_escape(a.kind)}"
        f" | {_escape(a.message)}"
        for a in reversed(anomalies)
    ]
    return f"**{total} anomalies**, the latest {len(rows)} first\n\n" + _table(
        "step | rebuild | bucket | stage | kind | message", rows
    )
