"""Sums over all ranks to what is compared: the same numbers that ``measure`` makes of all at once.

    RunSums --measures_of--> Measures, without what needs the ranks side by side

Without what a rank waited for another: wire is not told apart, and neither is the exposed time by
stage, which until the last rank's last gradient is waiting.  It is all *between* in ``parts`` here,
and ``facts.from_summaries`` says that it is not known.  Steps that hung on any rank are left out.
"""

from __future__ import annotations

import numpy as np

from ..report.step_arrays import Floats
from ..report.step_parts import KINDS, StepParts
from ..summaries.race import Table
from ..summaries.summary import Job
from ..timeline import Bools
from .comparison import BucketKey, RunFacts
from .measure import Measures, Series, series_of_means
from .sums import ModelSums, RunSums

_MEANS = ("period", "exposed", "busy", "wire", "wire_bytes")
_BUCKET_BITS = 20
"""Of ``bucket_keys``."""

_WAITS_UNKNOWN = "ranks were summed up one by one"


def measures_of(
    sums: RunSums, job: Job, model: str, name: str, losses: dict[str, Series] | None = None
) -> Measures | None:
    """Return what is compared of a model in a run; ``None`` where no step of it has settled."""
    if model not in sums.models:
        return None
    m = sums.models[model]
    hung = sorted(sums.hung.get(model, ()))
    rows = ~np.isin(m.by_step.keys, hung)
    table = Table(m.by_step.keys[rows], {k: v[rows] for k, v in m.by_step.columns.items()})
    parts = _parts(m, table)
    return Measures(
        facts=_facts(sums, job, model, name, int(np.count_nonzero(~np.isin(m.steps, hung)))),
        series=_series(m, table, parts),
        parts=parts.of_known(),
        losses=losses or {},
    )


def _series(m: ModelSums, table: Table, parts: StepParts) -> dict[str, Series]:
    columns = table.columns
    means = {name: _mean(columns[name], columns[f"{name} count"]) for name in _MEANS}
    found = series_of_means(table.keys, means, parts.busy_in)
    found.pop("transfer", None)  # all of wire, for want of better
    if not len(found["wire_bytes"].values):
        del found["wire_bytes"]
    errors = _mean(m.errors.columns["sum"], m.errors.columns["count"])
    return found | {"error": Series(m.errors.keys.astype(np.float64), errors)}


def _mean(sums: Floats, count: Floats) -> Floats:
    found: Floats = np.where(count > 0, sums / np.maximum(count, 1), np.nan)
    return found


def _parts(m: ModelSums, table: Table) -> StepParts:
    columns, count = table.columns, table.columns["whole"]
    share = np.where(count > 0, 1 / np.maximum(count, 1), np.nan)
    compress = columns["compress in calls"] * share
    exposed_in = np.zeros((len(KINDS), len(table.keys), len(m.sizes)))
    exposed_in[KINDS.index("between")] = _added(m, table) * share[:, None]
    known: Bools = count > 0
    return StepParts(
        period=columns["whole period"] * share,
        exposed=columns["whole exposed"] * share,
        exposed_in=exposed_in,
        compress=compress,
        calls=columns["calls"] * share - compress,
        busy_in=np.stack([columns[f"in {kind}"] for kind in KINDS]) * share,
        known=known,
    )


def _added(m: ModelSums, table: Table) -> Floats:
    """Return the exposed ns that each bucket adds on all ranks together, (steps, buckets)."""
    keys, buckets = m.by_bucket.keys, np.array(sorted(m.sizes), dtype=np.int64)
    step, bucket = keys >> _BUCKET_BITS, keys & ((1 << _BUCKET_BITS) - 1)
    kept = np.isin(step, table.keys)
    found = np.zeros((len(table.keys), len(buckets)))
    places = np.searchsorted(table.keys, step[kept]), np.searchsorted(buckets, bucket[kept])
    found[places] = m.by_bucket.columns["added"][kept]
    return found


def _facts(sums: RunSums, job: Job, model: str, name: str, steps: int) -> RunFacts:
    m, run = sums.models[model], job.run
    least, most = m.sent
    nothing: tuple[int, tuple[tuple[str, tuple[int, ...]], ...]] = (0, ())
    return RunFacts(
        name=name,
        run_id=run.run_id if run else "",
        model=model,
        hook=m.setup.hook,
        hook_options=m.setup.options,
        bucket_cap_bytes=m.setup.bucket_cap_bytes,
        ranks=tuple(sorted(sums.ranks)),
        world_size=run.world_size if run else 0,
        hosts=tuple(sorted(sums.hosts)),
        torch_version=run.torch_version if run else "",
        backend=run.backend if run else "",
        clock="device" if m.is_on_device else "host",
        steps=steps,
        probed=len(m.probed),
        gradient_bytes=int(_median(m.gradient_bytes)),
        least_wire_bytes=None if least == np.inf else least,
        most_wire_bytes=None if most == -np.inf else most,
        buckets=tuple(
            BucketKey(b, m.sizes[b], m.parameters.get(b, nothing)[1], m.units.get(b))
            for b in sorted(m.sizes)
        ),
        unaligned=tuple(sorted(sums.unaligned)) if len(sums.ranks) > 1 else (),
        waits_unknown=_WAITS_UNKNOWN,
        late=(),
        closed=not sums.open,
        from_summaries=True,
        every=job.every,
        is_sharded=m.is_sharded,
        beside=tuple(sorted(sums.models.keys() - {model})),
    )


def _median(counts: dict[float, int]) -> float:
    """Return the median of values that occur so often each; 0 of none."""
    if not counts:
        return 0.0
    values = sorted(counts)
    until = np.cumsum([counts[value] for value in values])
    total = int(until[-1])
    low, high = (int(np.searchsorted(until, at, "right")) for at in ((total - 1) // 2, total // 2))
    return (values[low] + values[high]) / 2
