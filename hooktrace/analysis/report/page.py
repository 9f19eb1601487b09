"""The report as one HTML file: nothing is loaded, nothing runs; all names are escaped.

RunFacts, Timeline --sections--> head, tiles, findings, pictures, tables, what is missing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ...records.units import bandwidth, mb, ms, percent
from ..timeline import Timeline
from .facts import ModelFacts, RunFacts
from .finding import Finding
from .findings import anomaly_findings, findings
from .pictures import error_picture, lag_picture, overlap_picture, stages_picture
from .step_picture import step_pictures
from .style import STYLE
from .tables import Columns, bucket_columns, rank_columns, stages_of
from .terminal import headline

__all__ = ["page"]


def page(facts: RunFacts, timeline: Timeline) -> str:
    """Return the whole page; ``timeline`` is what ``facts`` were made of."""
    parts = [f"<h1>hooktrace report</h1><p class=soft>{escape(headline(facts))}</p>"]
    if facts.missing:
        items = "".join(f"<li>{escape(line)}</li>" for line in facts.missing)
        parts.append(f"<h3>What is missing</h3><div class=missing><ul>{items}</ul></div>")
    parts += [_model(model, facts, timeline) for model in facts.models]
    if facts.anomalies:
        parts.append(_findings(anomaly_findings(facts.anomalies), 0.0))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<title>hooktrace report</title>"
        f"<style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _model(model: ModelFacts, facts: RunFacts, timeline: Timeline) -> str:
    found = findings(model, facts.run)
    period = model.period.p50 if model.period else 0.0
    steps = f"{model.hook}, {model.steps:,} steps on {len(model.ranks)} ranks, {model.clock} times"
    return "".join(
        [
            f"<h2>{escape(model.model)}</h2><p class=soft>{escape(steps)}</p>",
            _tiles(model),
            _findings(found, period),
            _pictures(model, timeline),
            _table("Buckets", bucket_columns(model), _OF_BUCKETS),
            _table("Ranks", rank_columns(model.ranks), _OF_RANKS),
        ]
    )


def _tiles(model: ModelFacts) -> str:
    exposed = model.exposed.p50 if model.exposed else None
    tiles = [
        (ms(model.period.p50 if model.period else None), "a step, median"),
        (ms(exposed), f"exposed, {percent(model.exposed_share)} of the step"),
        (percent(model.overlap), "overlap with backward"),
        (mb(model.wire_bytes), f"sent a step, of {mb(model.gradient_bytes)}"),
        (bandwidth(model.busbw_bytes_per_second), "bus bandwidth (nccl-tests)"),
    ]
    inner = "".join(
        f"<div class=tile><b>{escape(value)}</b><span>{escape(name)}</span></div>"
        for value, name in tiles
    )
    return f"<div class=tiles>{inner}</div>"


def _findings(found: Sequence[Finding], period: float) -> str:
    if not found:
        return ""
    items = "".join(_finding(one, period) for one in found)
    return (
        f"<h3>Findings</h3><ol class=findings>{items}</ol>"
        "<p class=soft>A gain is an upper bound for each step, computed from the records. Gains "
        "overlap: most draw on the same exposed time, so they do not add up.</p>"
    )


def _finding(one: Finding, period: float) -> str:
    if one.is_wrong:
        gain = "wrong"
    elif one.gain_ns is None:
        gain = "&ndash;"
    else:
        share = min(1.0, one.gain_ns / period) if period else 0.0
        gain = (
            f"{escape(ms(one.gain_ns))}<small>at most, {escape(percent(share))} of a step</small>"
            f'<div class=meter><i style="width:{100 * share:.1f}%"></i></div>'
        )
    evidence = "".join(f"<li>{escape(text)}</li>" for text in one.evidence)
    remedy = f"<div class=remedy>{escape(one.remedy)}</div>" if one.remedy else ""
    return (
        f'<li class="finding{" wrong" if one.is_wrong else ""}"><div class=gain>{gain}</div>'
        f"<div><p>{escape(one.sentence)}</p><ul>{evidence}</ul>{remedy}</div></li>"
    )


def _pictures(model: ModelFacts, timeline: Timeline) -> str:
    stages = stages_of(model)
    in_bars = [
        part for name in stages for part in (("wait", "wire") if name == "wire" else (name,))
    ]
    parts = []
    drawn = step_pictures(model, timeline)
    for one in drawn:
        parts.append(_titled(one.title, one.svg, "", [*stages, "exposed", "ended"], ""))
    if drawn:
        parts.append(
            "<p class=soft>Each rank on its own row, times since the first bucket of the step was "
            f"ready on any rank, all on one scale{_of_clocks(model, timeline)}.</p>"
        )
    parts.append(
        _titled(
            "Overlap and exposed time, step by step",
            overlap_picture(model),
            "Line: median of the ranks. Band: from the least to the most of them. Values above the "
            "axis are cut off.",
            [],
            "No step's overlap is known.",
        )
    )
    parts.append(
        _titled(
            "Where a bucket's time goes",
            stages_picture(model),
            "Medians of each stage, so a bar need not end at the median of the whole. Of wire the "
            "wait for the last rank is set apart: the median wire time less that of the rank that "
            "waits least.",
            in_bars,
            "No stage of a bucket is known.",
        )
    )
    parts.append(
        _titled(
            "Who is late, and at which bucket",
            lag_picture(model),
            "Median time after the first rank at which a rank has a bucket ready; across: bucket.",
            [],
            "The ranks' clocks are not known to each other, so nobody can be called late.",
        )
    )
    parts.append(
        _titled(
            "What the hook loses",
            error_picture(model),
            "Relative L2 error against a lossless average. Dot: median of the probes. Line: to the "
            "largest.",
            [],
            _no_error(model),
        )
    )
    return "".join(parts)


def _of_clocks(model: ModelFacts, timeline: Timeline) -> str:
    unknown = [str(rank) for rank in timeline.unaligned if rank in model.grid.ranks]
    if not unknown:
        return ""
    return f"; the clock of rank {', '.join(unknown)} is unknown and taken from its wall clock"


def _no_error(model: ModelFacts) -> str:
    probes = sum(b.error.count for b in model.buckets if b.error is not None)
    if probes:
        return f"The error was 0 in all of {probes} probes."
    return "No bucket's error was measured: no probe fell into these steps."


def _titled(title: str, svg: str, caption: str, legend: Iterable[str], otherwise: str) -> str:
    body = _figure(svg, caption, legend) if svg else f"<p class=soft>{escape(otherwise)}</p>"
    return f"<h3>{escape(title)}</h3>{body}"


_PARTS = {"wire": ("wait", "wire")}
_LEGEND = {
    "wait": "wire: wait for the last rank",
    "exposed": "exposed",
    "ended": "last gradient ready",
}


def _figure(svg: str, caption: str, legend: Iterable[str]) -> str:
    items = "".join(
        f'<span><i class="{name}"></i>{escape(_LEGEND.get(name, name))}</span>' for name in legend
    )
    head = f"<div class=legend>{items}</div>" if items else ""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{head}<div class=wide>{svg}</div>{below}</figure>"


_OF_BUCKETS = (
    "Medians. Sizes in MB, times in ms. ready: after the step's first bucket; time: from ready to "
    "done; wait: the part of wire until the last rank is there; tail: share of the exposed time "
    "that this bucket adds; busbw (nccl-tests) in MB/s; error: relative L2."
)
_OF_RANKS = "Medians in ms. lag: of the last bucket after the first rank; needs known clocks."


def _table(title: str, columns: Columns, caption: str) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in columns.names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in columns.rows
    )
    return (
        f"<h3>{title}</h3><div class=table><table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
