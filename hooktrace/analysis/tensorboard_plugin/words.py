"""What the page shows as text of lists, paths, heat maps and selections; it only lays it out.

summary_of   --lists_of-->        rows of each list: a label, a value, and where a click leads
RunPaths     --path_words-->      a sentence, and a row for each part with its share
heat_map     --heat_note-->       what is to know of its cells
selection    --selection_words--> sentences, and the rows as CSV
"""

from __future__ import annotations

import csv
import io
from typing import Any

_UNITS = ((60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_MOST_STEPS = 12
_LEAST_PART = 0.01

Row = dict[str, Any]
"""``label``, ``value``, ``text`` (a tooltip), and ``step``, ``rank``, ``at`` as far as a click
needs them; or a ``note`` alone."""


def time_text(ns: int) -> str:
    """Return ns with three significant digits, in the largest unit of which there is one."""
    for size, unit in _UNITS:
        if abs(ns) >= size:
            return f"{float(f'{ns / size:.3g}'):g} {unit}"
    return f"{ns} ns"


def counted(count: int, noun: str) -> str:
    """Return ``1 rank`` or ``1,024 ranks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def lists_of(summary: dict[str, Any], noun: str) -> dict[str, list[Row]]:
    """Return the rows of each list; ``noun``: what a bar is."""
    more = summary["anomaly_count"] - len(summary["anomalies"])
    return {
        "slowest": [_step(one, "period") for one in summary["slowest"][:_MOST_STEPS]],
        "exposed": [_step(one, "exposed") for one in summary["exposed"][:_MOST_STEPS]],
        "late": [*map(_late, summary["late"]), *_note(summary["late_note"])],
        "anomalies": [
            *map(_anomaly, summary["anomalies"]),
            *_note(f"and {more:,} more" if more else ""),
        ],
        "rebuilds": [_rebuild(one, noun) for one in summary["rebuilds"]],
    }


def _note(text: str) -> list[Row]:
    return [{"note": text}] if text else []


def _step(one: dict[str, int], name: str) -> Row:
    most = f"rank {one['rank']} has the most exposed: {time_text(one['exposed'])}"
    return {
        "label": f"step {one['step']}",
        "value": time_text(one[name]),
        "text": most if one["exposed"] >= 0 else "",
        "step": one["step"],
    }


def _late(one: dict[str, Any]) -> Row:
    return {
        "label": f"rank {one['rank']}: {one['times']} of {one['of']} steps",
        "value": f"up to {time_text(one['margin'])}",
        "text": f"last at {one['name']}; the most at step {one['step']}",
        "step": one["step"],
        "rank": one["rank"],
    }


def _anomaly(one: dict[str, Any]) -> Row:
    parts = one["kind"].replace("_", " "), f"step {one['step']}", one["who"]
    return {
        "label": ", ".join(filter(None, parts)),
        "value": "",
        **{name: one[name] for name in ("text", "step", "rank", "at")},
    }


def _rebuild(one: dict[str, Any], noun: str) -> Row:
    return {
        "label": f"generation {one['generation']}",
        "value": f"{counted(one['buckets'], noun)}, step {one['step']}",
        **{name: one[name] for name in ("text", "step", "at")},
    }


def path_words(path: dict[str, Any]) -> dict[str, Any]:
    """Return ``title`` and ``rows`` of a step's path."""
    step, length = path["step"], path["end"] - path["start"]
    if path["why_unknown"] is not None:
        return {"title": f"Step {step} has none: {path['why_unknown']}.", "rows": []}
    return {
        "title": f"Step {step} took {time_text(length)}:",
        "rows": _shares(path["parts"], length),
    }


def path_sums_words(sums: dict[str, Any]) -> dict[str, Any]:
    """Return the same of an average step of the run."""
    if sums["why_unknown"] is not None:
        return {"title": f"There is none: {sums['why_unknown']}.", "rows": []}
    steps, of, length = sums["steps"], sums["of"], sums["length"]
    every = f"all {of} steps that count"
    some = f"{steps} of the {of} steps that count, chosen by chance"
    title = f"On average {time_text(length)} a step, of {some if steps < of else every}:"
    return {"title": title, "rows": _shares(sums["parts"], length)}


def _shares(parts: list[list[Any]], length: int) -> list[tuple[str, str, float]]:
    """Return text, ns with their share, and the share in percent; small parts are one row."""
    small = [part for part in parts if part[1] < _LEAST_PART * length]
    if len(small) > 1:
        left = [f"{len(small)} parts below 1 % each", sum(ns for _, ns in small)]
        parts = [*(part for part in parts if part not in small), left]
    shares = [(text, ns, 100 * ns / max(1, length)) for text, ns in parts]
    return [
        (text, f"{time_text(ns)}, {'< 1' if share < 1 else round(share)} %", share)
        for text, ns, share in shares
    ]


def heat_note(found: dict[str, Any]) -> str:
    """Return what is to know of a heat map's cells; "" if nothing is."""
    bin_steps, unknown, unsure = found["bin_steps"], found["unknown"], found["unsure"]
    notes = (
        f"{bin_steps} steps a column, the largest is shown" if bin_steps > 1 else "",
        f"hatched: {unknown}" if unknown else "",
        f"clocks are known to {time_text(unsure)}" if unsure else "",
    )
    return " · ".join(filter(None, notes))


_COLUMNS = ("count", "busy", "sum", "mean", "p95", "low", "high")


def selection_words(found: dict[str, Any], *, is_sharded: bool) -> dict[str, str]:
    """Return the texts by what they are; ``row``: what a row is that is no stage.

    In the CSV lengths are in ns, and ``exposed_share`` is empty where nothing is exposed.
    """
    sharded, whole = ("collective", "unit", "begun"), ("bucket", "bucket", "ready")
    noun, row, begun = sharded if is_sharded else whole
    split = found["wire_not_split"]
    return {
        "row": row,
        "title": f"{time_text(found['t1'] - found['t0'])} selected",
        "sentence": (
            f"{counted(found['buckets_counted'], noun)} {begun} in it "
            f"({counted(found['ranks'], 'rank')}, {counted(found['steps'], 'step')}), counted "
            f"whole; {found['reach_in']:,} that reach in from before are not counted, "
            f"{found['reach_out']:,} reach out; {time_text(found['exposed'])} exposed, all ranks "
            "together"
        ),
        "explained": (
            "busy: at least one is under way, added up over the ranks. sum counts "
            f"{noun}s that overlap more than once and is no cost. exposed: share of the exposed "
            "time in which it is under way; several are at once."
            + (f" Wire is not told apart into wait and transfer: {split}." if split else "")
        ),
        "left": f"and {counted(more, f'more {noun}')}" if (more := found["more_buckets"]) else "",
        "csv": _csv(found, row),
    }


def _csv(found: dict[str, Any], row: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name if name == "count" else f"{name}_ns" for name in _COLUMNS]
    writer.writerow(["kind", "name", *names, "exposed_share"])
    for kind, rows in (("stage", found["stages"]), (row, found["buckets"])):
        for one in rows:
            numbers = (_plain(one[name]) for name in (*_COLUMNS, "exposed"))
            writer.writerow([kind, one["name"], *numbers])
    return text.getvalue()


def _plain(value: float | None) -> float | None:
    """Return a whole number as one, so that it is written without a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
