"""The ranks that the report calls late, as the tab marks and lists them.

Timeline, model --late_in--> LateBars: where others waited for each such rank
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..report.causes import late_ranks
from ..report.facts import LateRank
from ..report.last_of_group import LastOfGroup, is_order_known, last_of_groups, why_nobody
from ..report.step_arrays import StepArrays, settled_steps
from ..timeline import Ints, Timeline, bucket_keys


@dataclass(frozen=True, slots=True)
class LateBars:
    """A late rank: last to ``bucket`` in ``times`` of ``of`` steps, the most in ``step``.

    ``margin_ns``: by how much in that step.  ``keys``: ``bucket_keys`` where others wait for it, of
    the buckets at which it is last often.
    """

    rank: int
    bucket: int
    times: int
    of: int
    margin_ns: int
    step: int
    keys: Ints


def late_in(timeline: Timeline, model: str) -> tuple[list[LateBars], str]:
    """Return the late ranks, the worst first, and of several ranks why none is named."""
    if len(timeline.tracks) < 2:
        return [], ""
    arrays = settled_steps(timeline, model)
    if arrays is None or not len(arrays.steps):
        return [], "Not known: no step counts."
    late = late_ranks(arrays)
    if not late:
        return [], _note(arrays)
    groups = last_of_groups(arrays)
    return [_bars_of(arrays, groups, one) for one in late], ""


def _bars_of(arrays: StepArrays, groups: Sequence[LastOfGroup], late: LateRank) -> LateBars:
    i, b = arrays.ranks.index(late.rank), arrays.buckets.tolist().index(late.bucket)
    keys = []
    for one in groups:
        step, place = np.nonzero((one.last == i) & one.often_by(i))
        bucket = arrays.buckets[np.array(one.group.buckets)[place]]
        keys.append(bucket_keys(arrays.steps[step], bucket))
    one = next(one for one in groups if i in one.group.ranks and b in one.group.buckets)
    at = one.group.buckets.index(b)
    is_last = (one.last[:, at] == i) & one.is_sure[:, at]
    margin = np.where(is_last, one.margin[:, at], -1.0)
    return LateBars(
        rank=late.rank,
        bucket=late.bucket,
        times=int(is_last.sum()),
        of=int(one.seen[at]),
        margin_ns=int(margin.max()),
        step=int(arrays.steps[margin.argmax()]),
        keys=np.concatenate(keys),
    )


def _note(arrays: StepArrays) -> str:
    if arrays.is_sharded and not arrays.together and arrays.waited.why_unknown is not None:
        return f"Not known: {arrays.waited.why_unknown}."
    why = why_nobody(
        is_order_known=is_order_known(arrays),
        is_sharded=arrays.is_sharded,
        is_on_device=arrays.is_on_device,
    )
    return f"No rank is named: {why}."
