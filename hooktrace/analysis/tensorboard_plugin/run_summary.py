"""The lists beside the lanes: slow steps, late ranks, what went wrong; and where a step is.

Scene --lists_of--> rows of each list, from which a click jumps
Scene, step --step_of--> when it was, and how long it took
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...records.units import named_ranks, percent, time_text
from ..run import UNKNOWN, Ints
from ..run.columns import KEY_BITS, Floats
from ..run.dense import StepArrays, settled_steps
from ..run.order import LateRank
from ..run.scene import KINDS, Scene
from ..run.source import of_step
from .runs import NotThereError

MAX_LISTED = 20
"""Rows in a list."""

Row = dict[str, Any]
"""``label``, ``value``, ``text`` (a tooltip), and ``step``, ``rank``, ``at`` (ns since the origin)
as far as a click needs them; or a ``note`` alone."""


def summary(scene: Scene) -> dict[str, Any]:
    """Return the lists, who is late, and what ranks usually have exposed."""
    return {
        "extent": scene.extent,
        "lists": lists_of(scene),
        "late": [{"rank": one.rank, "share": one.share} for one, _ in scene.late],
        "usual_exposed": usual_exposed(scene),
    }


def lists_of(scene: Scene) -> dict[str, list[Row]]:
    """Return the rows of each list."""
    wrong, arrays = [*wrong_of(scene)], settled_steps(scene.run, scene.model)
    more = len(wrong) - MAX_LISTED
    return {
        "slowest": [*_largest(arrays, lambda of: of.job_period)],
        "exposed": [*_largest(arrays, lambda of: of_step(of.exposed))],
        "late": [
            *(_late(*one) for one in scene.late[:MAX_LISTED]),
            *([{"note": scene.late_note}] if scene.late_note else []),
        ],
        "anomalies": [*wrong[:MAX_LISTED], *([{"note": f"and {more:,} more"}] if more > 0 else [])],
        "waiting": [*_waiting(scene)],
    }


def _waiting(scene: Scene) -> Iterator[Row]:
    """Yield what share of all wire time is waiting, and for whom; why, where it is not known.

    Shares, since buckets overlap and all ranks wait at once: the sum is nobody's time.
    """
    if scene.waits.why_unknown is not None:
        yield {"note": f"not known: {scene.waits.why_unknown}"}
        return
    wait, wire = (float(scene.spent[KINDS.index(kind)].sum()) for kind in ("wait", "wire"))
    wire, ranks = wait + wire or 1.0, scene.numbers
    yield {"label": "of all wire time", "value": percent(wait / wire)}
    ns = np.zeros(len(ranks) + 1)  # the last one: of waits for a rank that is not known
    for waited in scene.waits.waited:
        at = waited.ns > 0
        ns += np.bincount(waited.last[at] % len(ns), weights=waited.ns[at], minlength=len(ns))
    order = [i for i in np.argsort(-ns, kind="stable").tolist() if ns[i] > 0]
    for i in order[:MAX_LISTED]:
        whom = f"rank {ranks[i]}" if i < len(ranks) else "a rank that the clocks do not show"
        yield {"label": f"for {whom}", "value": percent(ns[i] / wire)}
    if left := order[MAX_LISTED:]:
        yield {"label": "for others", "value": percent(ns[left].sum() / wire)}


def usual_exposed(scene: Scene) -> list[list[int]]:
    """Return the median exposed time of each rank's steps that count, in ns; -1 without any."""
    known = scene.steps.at(scene.steps.counts & (scene.steps.exposed >= 0))
    own = (known.exposed[known.of_rank(i)] for i in range(len(scene.numbers)))
    medians = (int(np.median(one)) if len(one) else -1 for one in own)
    return [[rank, ns] for rank, ns in zip(scene.numbers, medians, strict=True)]


def step_of(scene: Scene, step: int | None) -> dict[str, int]:
    """Return where a step is, or the nearest one.

    ``None``: the report's typical step.  Raises ``NotThereError`` where there are no steps, or none
    that is typical.
    """
    if not len(scene.step_numbers):
        raise NotThereError("there are no steps yet")
    if step is None:
        arrays = settled_steps(scene.run, scene.model)
        if arrays is None or arrays.typical is None:
            raise NotThereError("no step counts yet")
        step = arrays.typical
    at = int(np.abs(scene.step_numbers - step).argmin())
    start, end = (int(times[at]) for times in step_spans(scene))
    return {"step": int(scene.step_numbers[at]), "start": start, "end": end}


def step_spans(scene: Scene) -> tuple[Ints, Ints]:
    """Return the first start and the last end of each of ``scene.step_numbers`` on any rank."""
    steps, count = scene.steps, len(scene.step_numbers)
    at = np.searchsorted(scene.step_numbers, steps.number)
    start, end = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(start, at, steps.start)
    np.maximum.at(end, at, steps.end)
    return start, end


def _largest(arrays: StepArrays | None, values: Callable[[StepArrays], Floats]) -> Iterator[Row]:
    """Yield the steps that count of which a number is largest, and who has most exposed there."""
    if arrays is None:
        return
    of_steps, exposed = values(arrays), np.nan_to_num(arrays.exposed, nan=UNKNOWN)
    for at in np.argsort(-of_steps, kind="stable")[:MAX_LISTED].tolist():  # NaN comes last
        if not np.isnan(of_steps[at]):
            step, rank = int(arrays.steps[at]), int(exposed[:, at].argmax())
            most = f"rank {arrays.ranks[rank]} has the most exposed: "
            text = most + time_text(exposed[rank, at]) if exposed[rank, at] >= 0 else ""
            value = time_text(of_steps[at])
            yield {"label": f"step {step}", "value": value, "text": text, "step": step}


def _late(late: LateRank, calls: Ints) -> Row:
    """Return where a rank is late, how often, and by how much, as the report has it."""
    return {
        "label": f"rank {late.rank}: last in {percent(late.share)} of the steps",
        "value": time_text(late.margin_ns),
        "text": f"others wait for it at bucket {late.bucket}, so long a step in the mean",
        "step": int(calls[0] >> KEY_BITS),
        "rank": late.rank,
    }


def wrong_of(scene: Scene) -> Iterator[Row]:
    """Yield the hangs, and the anomalies by when they were, but for stalls of hung steps."""
    for hang in scene.hangs:
        ranks, step = hang.record.ranks, hang.record.step
        label = f"hang, step {step}" + (f", for {named_ranks(ranks)}" if ranks else "")
        text, rank = f"{hang.record.sentence}; {hang.outcome}", next(iter(ranks), None)
        where = {"step": step, "rank": rank, "at": hang.start - scene.origin}
        yield {"label": label, "value": "", "text": text, **where}
    hung = {hang.record.step for hang in scene.hangs}
    for place, at, one in sorted(scene.anomalies, key=lambda found: found[1]):
        if one.kind != "stall" or one.step not in hung:
            where = {"step": one.step, "rank": scene.numbers[place], "at": at}
            label = f"{one.kind.replace('_', ' ')}, step {one.step}, rank {where['rank']}"
            yield {"label": label, "value": "", "text": one.message, **where}
