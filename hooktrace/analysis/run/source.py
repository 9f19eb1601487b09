"""What report and comparison both say of a model: its hook, which of its steps, a number a step.

    Run, StepArrays --model_source--> ModelSource
    values of ranks and steps --of_step--> a number a step

Ranks of one step wait for each other, so they are no units of their own: each step is one number,
the mean of its ranks.  For the step time this is what the job takes: each rank's periods add up to
the same time.  The largest of the ranks would be too long always, since it counts whose first
bucket happened to come early, and parts of a mean add up where those of a median do not.
"""

from __future__ import annotations

from math import prod
from typing import Literal

import msgspec
import numpy as np

from ...records import Options
from ...records.units import mb
from .columns import Floats
from .counts import steps_left_out
from .dense import StepArrays, known_middle, sums
from .order import LateRank, late_ranks
from .run import Run

_FEW = 0.05
"""Of the steps: medians hardly change by these."""


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """One model's last rebuild of buckets; of a sharded model all collectives of its units.

    Hook: ``hook_options``, ``bucket_cap_bytes``: as the layout says, no options and ``None`` where
    it does not.  ``parameters``, ``elements``: of a sharded model each counts once, as a whole.
    Steps: ``seen`` of these any file has; of ``steps`` the times enter statistics, and of
    ``bucket_steps`` those of buckets, which stand for all (``StepColumns.standing_for``);
    ``left_out``: how many others, by the reason; ``lacking``: how many of ``steps`` not all ranks
    have, since a file ends early or begins late.
    Bytes: ``gradient_bytes`` are what a rank gives to the collectives of a step.  ``wire_bytes`` is
    the median of all steps, ``least_wire_bytes`` of the one which sends least, and
    ``often_wire_bytes`` what one in twenty sends, or more.
    Ranks: ``wait_unknown`` says why no bucket's wait is known, ``split_unknown`` why too few are to
    tell wait and transfer apart in a step's parts; ``beside``: models with steps in between, which
    may communicate within the steps.
    """

    model: str
    hook: str
    hook_options: Options
    bucket_cap_bytes: int | None
    parameters: int | None
    elements: int | None
    clock: Literal["host", "device"]
    seen: int
    steps: int
    bucket_steps: int
    left_out: dict[str, int]
    lacking: int
    gradient_bytes: int
    wire_bytes: float | None
    least_wire_bytes: float | None
    often_wire_bytes: float | None
    wait_unknown: str | None
    split_unknown: str | None
    late: tuple[LateRank, ...]
    beside: tuple[str, ...] = ()
    is_sharded: bool = False

    @property
    def thin(self) -> str | None:
        """That ranks are missing in more steps than medians leave out of account."""
        if self.lacking <= _FEW * self.steps:
            return None
        return (
            f"in {self.lacking:,} of {self.steps:,} a rank is missing, and the others stand for it"
        )

    @property
    def several_kinds(self) -> str | None:
        """That steps are of several kinds, which do not send the same."""
        usual, least = self.wire_bytes or 0.0, self.least_wire_bytes or 0.0
        often = self.often_wire_bytes or 0.0
        if not usual or (least >= 0.9 * usual and often <= 1.1 * usual):
            return None
        return (
            f"steps are of several kinds: they send {mb(usual)} at the median, and from "
            f"{mb(least)} to {mb(often)}; all medians are over both"
        )


def model_source(run: Run, arrays: StepArrays) -> ModelSource:
    """Return what the files say of a model."""
    wait_unknown = arrays.sample.wait_unknown  # first: what it takes in between, others have later
    layout, is_sharded, sent = arrays.layout, arrays.is_sharded, arrays.sent()
    shapes = parameter_shapes(arrays)
    seen, left_out = steps_left_out(run, arrays.model)
    return ModelSource(
        model=arrays.model,
        hook=arrays.hook,
        hook_options=layout.hook_options if layout else (),
        bucket_cap_bytes=layout.bucket_cap_bytes if layout else None,
        parameters=len(shapes) if layout else None,
        elements=sum(map(prod, shapes)) if layout else None,
        clock="device" if arrays.is_on_device else "host",
        seen=seen,
        steps=len(arrays.steps),
        bucket_steps=len(arrays.sample.steps) if len(arrays.sample.buckets) else 0,
        left_out=left_out,
        lacking=int(np.count_nonzero(np.isnan(arrays.by_step("step")).any(axis=0))),
        gradient_bytes=int(known_middle(arrays.by_step("gradient_bytes")) or 0),
        wire_bytes=known_middle(sent),
        least_wire_bytes=known_middle(sent, 0.0),
        often_wire_bytes=known_middle(sent, 0.95),
        wait_unknown=wait_unknown,
        split_unknown=arrays.sample.split_unknown,
        late=tuple(late for late, _ in late_ranks(arrays.sample)),
        beside=tuple(name for name in run.model_names if _are_beside(run, arrays.model, name)),
        is_sharded=is_sharded,
    )


def _are_beside(run: Run, model: str, other: str) -> bool:
    """Return whether another model has a step between a model's first and last one on any rank."""
    for steps, is_of in ((track.steps, track.is_of) for track in run.tracks):
        own, theirs = (steps.first_ready[is_of(steps, name)] for name in (model, other))
        if len(own) and ((own.min() < theirs) & (theirs < own.max())).any():
            return model != other
    return False


def parameter_shapes(arrays: StepArrays) -> list[tuple[int, ...]]:
    """Return the shapes of the model's parameters as the layout has them, each parameter once."""
    # A sharded model's parameter is in each of its unit's collectives.
    shapes = {
        (b.unit.name if b.unit else (b.bucket, i), one.name): one.shape
        for b in (arrays.layout.buckets if arrays.layout else ())
        for i, one in enumerate(b.parameters)
    }
    return [*shapes.values()]


def of_step(values: Floats) -> Floats:
    """Return each step's number, (S,), of one for each rank, (R, S): the mean of those known."""
    found: Floats = sums(values.T) / np.count_nonzero(~np.isnan(values), axis=0)
    return found
