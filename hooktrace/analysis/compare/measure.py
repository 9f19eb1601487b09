"""What is compared of a run: a number a step, the ranks of a step put together.

    Run --settled_steps--> StepArrays --+--means over ranks--> Measures
                                        +--step_parts------------^
    Measures of both --grouping--> what can be told apart in both --step_table--> parts a step

Ranks of one step wait for each other, so they are no units of their own: each step is one number,
the mean of its ranks.  For the step time this is what the job takes: each rank's periods add up to
the same time.  The largest of the ranks would be too long always, since it counts whose first
bucket happened to come early, and parts of a mean add up where those of a median do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..run import Run, models_beside
from ..run.counts import steps_left_out
from ..run.dense import Floats, StepArrays, known_middle, settled_steps
from ..run.late import late_ranks
from ..run.missing import missing
from ..run.parts import KINDS, StepParts, step_parts
from .comparison import BucketKey, RunFacts

MOST_UNKNOWN = 0.05
"""Share of wire stages whose wait may be unknown where wire is told apart all the same."""


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of some steps in order: (steps,) each."""

    steps: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class Measures:
    """One model of one run.

    ``series``: by quantity, ns, bytes or a share of each step that tells.  ``parts``: of the steps
    of which all is known.
    """

    facts: RunFacts
    series: dict[str, Series]
    parts: StepParts

    @property
    def is_opaque(self) -> bool:
        """Whether no stage of the hook is seen, only its call and its future."""
        return self.has("hook") or self.has("pending")

    def has(self, kind: str) -> bool:
        """Return whether any bucket was in a kind of ``KINDS``."""
        at = KINDS.index(kind)
        return bool(self.parts.busy_in[at].any() or self.parts.exposed_in[at].any())

    def exposed(self, kinds: Sequence[str]) -> Floats:
        """Return the exposed time in some kinds together, (steps, buckets)."""
        found: Floats = self.parts.exposed_in[[KINDS.index(kind) for kind in kinds]].sum(axis=0)
        return found


def measure(run: Run, model: str, name: str) -> Measures | None:
    """Return what is compared of a model in a run; ``None`` where no step of it has settled."""
    arrays = settled_steps(run, model)
    if arrays is None:
        return None
    parts = step_parts(arrays.sample)
    at = arrays.sample.steps.astype(np.float64)
    busy = zip(KINDS, parts.busy_in, strict=True)
    in_kinds = {kind: _known(at, values) for kind, values in busy if np.nansum(values)}
    facts = _facts(run, arrays, name)
    return Measures(facts, _series(arrays) | in_kinds, parts.of_known())


def _series(arrays: StepArrays) -> dict[str, Series]:
    at = arrays.steps.astype(np.float64)
    exposed, busy = (_mean_of_ranks(values) for values in (arrays.exposed, arrays.busy))
    found = {
        "period": _known(at, _mean_of_ranks(arrays.period)),
        "exposed": _known(at, exposed),
        "busy": _known(at, busy),
        "wire": _known(at, _mean_of_ranks(arrays.by_step("wire_busy"))),
        "wire_bytes": _known(at, _mean_of_ranks(arrays.by_step("wire_bytes"))),
        "overlap": _known(at, 1 - exposed / busy),
    }
    if not len(found["wire_bytes"].values):  # of an opaque hook sampled steps alone tell
        values = arrays.sent()
        found["wire_bytes"] = _known(np.arange(len(values), dtype=np.float64), values)
    errors = sorted(arrays.errors_by_step().items())
    means = [[step, np.mean(of_buckets)] for step, of_buckets in errors]
    return found | {"error": Series(*np.array(means, np.float64).reshape(-1, 2).T)}


def _mean_of_ranks(values: Floats) -> Floats:
    known = ~np.isnan(values)
    count, sums = known.sum(axis=0), np.where(known, values, 0.0).sum(axis=0)
    found: Floats = np.where(count > 0, sums / np.maximum(count, 1), np.nan)
    return found


def _known(steps: Floats, values: Floats) -> Series:
    known = ~np.isnan(values)
    return Series(steps[known], values[known])


def _facts(run: Run, arrays: StepArrays, name: str) -> RunFacts:
    info, sent, layout = run.info, arrays.sent(), arrays.layout
    sizes = arrays.detailed.bucket_bytes.tolist()
    return RunFacts(
        name=name,
        run_id=info.run_id if info else "",
        model=arrays.model,
        hook=arrays.hook,
        hook_options=layout.hook_options if layout else (),
        bucket_cap_bytes=layout.bucket_cap_bytes if layout else None,
        ranks=tuple(arrays.ranks),
        world_size=run.world_size or 0,
        hosts=tuple(sorted({t.records.run.host for t in run.tracks if t.records.run is not None})),
        torch_version=info.torch_version if info else "",
        backend=info.backend if info else "",
        clock="device" if arrays.is_on_device else "host",
        steps=len(arrays.steps),
        probed=steps_left_out(run, arrays.model)[1].get("probed", 0),
        gradient_bytes=int(known_middle(arrays.by_step("gradient_bytes")) or 0),
        least_wire_bytes=known_middle(sent, 0.0),
        most_wire_bytes=known_middle(sent, 1.0),
        buckets=tuple(
            _key(arrays, *pair) for pair in zip(arrays.buckets.tolist(), sizes, strict=True)
        ),
        waits_unknown=_why_unknown(arrays),
        late=late_ranks(arrays),
        is_sharded=arrays.is_sharded,
        beside=models_beside(run, arrays.model),
        missing=tuple(missing(run)),
    )


def _key(arrays: StepArrays, index: int, size: float) -> BucketKey:
    entry, unit = arrays.entries.get(index), arrays.units.get(index)
    parameters = tuple((p.name, p.shape) for p in entry.parameters) if entry else ()
    return BucketKey(index, int(size), parameters, None if unit is None else str(unit))


def _why_unknown(arrays: StepArrays) -> str | None:
    """Return why it is not known what of the wire is waiting, a clause."""
    if arrays.wait_unknown is not None:
        return arrays.wait_unknown
    arrays = arrays.detailed
    is_unknown = np.isnan(arrays.waited[arrays.stages["wire"] > 0])
    if is_unknown.mean() > MOST_UNKNOWN:
        return "not all ranks are in each collective"
    return None


TITLES = {
    "probe": "hooktrace's own checks",
    "wait": "straggler wait",
    "transfer": "wire transfer",
    "hook": "the hook's call",
    "pending": "future wait",
    "between": "between stages",
    "calls": "rest of the calls",
    "all_calls": "the hook's calls",
    "compute": "outside communication",
    "period": "step time",
}
"""Of the parts of a step, by key, where it is not the title itself."""

Grouping = dict[str, tuple[str, ...]]
"""Kinds of ``step_parts`` that are one part, by its key."""


def grouping(a: Measures, b: Measures) -> Grouping:
    """Return what can be told apart in both.

    Of an opaque hook no stage is seen, so beside another hook only the exposed time is compared.
    """
    if a.is_opaque != b.is_opaque:
        return {"exposed": KINDS}
    found: Grouping = {kind: (kind,) for kind in KINDS if a.has(kind) or b.has(kind)}
    if a.facts.waits_unknown is not None or b.facts.waits_unknown is not None:
        for kind in ("wait", "transfer"):
            found.pop(kind, None)
        found["wire"] = ("wait", "transfer")
    return found


def step_table(one: Measures, of: Grouping) -> dict[str, Floats]:
    """Return each step's period, and its parts, by key, (steps,): they add up to it."""
    parts = one.parts
    found = {key: one.exposed(kinds).sum(axis=1) for key, kinds in of.items()}
    if "exposed" in found:
        found["all_calls"] = parts.calls + parts.compress
    else:
        found["compress"] = found.get("compress", np.zeros_like(parts.period)) + parts.compress
        found["calls"] = parts.calls
    found["compute"] = parts.period - sum(found.values())
    return {"period": parts.period, **found}
