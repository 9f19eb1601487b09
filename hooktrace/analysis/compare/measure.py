"""What is compared of a run: a number a step, the ranks of a step put together.

    Run --settled_steps--> StepArrays --+--means over ranks--> Measures
                                             +--step_parts--^
    event files --losses, of tags like loss--> Series a tag

Ranks of one step wait for each other, so they are no units of their own: each step is one number,
the mean of its ranks.  For the step time this is what the job takes: each rank's periods add up to
the same time.  The largest of the ranks would be too long always, since it counts whose first
bucket happened to come early, and parts of a mean add up where those of a median do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..run import STAGE_NAMES, UNKNOWN, Ints, Run, models_beside
from ..run.counts import steps_left_out
from ..run.dense import Floats, StepArrays, known_middle, settled_steps
from ..run.late import late_ranks
from ..run.parts import KINDS, StepParts, step_parts
from .comparison import BucketKey, Difference, RunFacts
from .differences import paired

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
    of which all is known.  ``losses``: by tag, of each step that has a scalar.
    """

    facts: RunFacts
    series: dict[str, Series]
    parts: StepParts
    losses: dict[str, Series] = field(default_factory=dict)


def measure(
    run: Run, model: str, name: str, losses: dict[str, Series] | None = None
) -> Measures | None:
    """Return what is compared of a model in a run; ``None`` where no step of it has settled."""
    arrays = settled_steps(run, model)
    if arrays is None:
        return None
    why, parts = _why_unknown(arrays), step_parts(arrays.sample)
    return Measures(
        facts=_facts(run, arrays, name, why),
        series=_series(arrays) | _busy_series(arrays.sample, parts),
        parts=parts.of_known(),
        losses=losses or {},
    )


def _why_unknown(arrays: StepArrays) -> str | None:
    """Return why it is not known what of the wire is waiting, a clause."""
    if arrays.wait_unknown is not None:
        return arrays.wait_unknown
    waited = np.concatenate([_wire_waits(arrays, i) for i in range(len(arrays.ranks))])
    if np.count_nonzero(waited == UNKNOWN) > MOST_UNKNOWN * len(waited):
        return "not all ranks are in each collective"
    return None


def _wire_waits(arrays: StepArrays, i: int) -> Ints:
    """Return how long each wire stage of a rank waited; ``UNKNOWN`` where that is not known."""
    track, rows, _, _ = arrays.rows_of_rank(i)
    stages, _ = track.stages_of(rows)
    is_wire = track.stages.name[stages] == STAGE_NAMES.index("wire")
    return arrays.waits.of_stages(i, stages[is_wire]).ns


def _busy_series(arrays: StepArrays, parts: StepParts) -> dict[str, Series]:
    at = arrays.steps.astype(np.float64)
    pairs = zip(KINDS, parts.busy_in, strict=True)
    return {kind: _known(at, values) for kind, values in pairs if np.nansum(values)}


def _series(arrays: StepArrays) -> dict[str, Series]:
    at = arrays.steps.astype(np.float64)
    of_ranks = {
        "period": arrays.period,
        "exposed": arrays.exposed,
        "busy": arrays.busy,
        "wire": arrays.by_step("wire_busy"),
        "wire_bytes": arrays.by_step("wire_bytes"),
    }
    means = {name: _mean_of_ranks(values) for name, values in of_ranks.items()}
    found = {name: _known(at, values) for name, values in means.items()}
    found["overlap"] = _known(at, 1 - means["exposed"] / means["busy"])
    found["error"] = _errors(arrays)
    if not len(found["wire_bytes"].values):  # of an opaque hook sampled steps alone tell
        values = arrays.sent()
        found["wire_bytes"] = _known(np.arange(len(values), dtype=np.float64), values)
    return found


def _mean_of_ranks(values: Floats) -> Floats:
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    sums = np.where(known, values, 0.0).sum(axis=0)
    found: Floats = np.where(count > 0, sums / np.maximum(count, 1), np.nan)
    return found


def _known(steps: Floats, values: Floats) -> Series:
    known = ~np.isnan(values)
    return Series(steps[known], values[known])


def _errors(arrays: StepArrays) -> Series:
    """Return the relative L2 error of each probed step, the mean of its buckets and ranks."""
    by_step = arrays.errors_by_step()
    steps = sorted(by_step)
    values = [float(np.mean(by_step[step])) for step in steps]
    return Series(np.array(steps, dtype=np.float64), np.array(values, dtype=np.float64))


def _facts(run: Run, arrays: StepArrays, name: str, waits_unknown: str | None) -> RunFacts:
    info, sent, layout = run.info, arrays.sent(), arrays.layout
    hosts = {t.records.run.host for t in run.tracks if t.records.run is not None}
    return RunFacts(
        name=name,
        run_id=info.run_id if info else "",
        model=arrays.model,
        hook=arrays.hook,
        hook_options=layout.hook_options if layout else (),
        bucket_cap_bytes=layout.bucket_cap_bytes if layout else None,
        ranks=tuple(arrays.ranks),
        world_size=run.world_size or 0,
        hosts=tuple(sorted(hosts)),
        torch_version=info.torch_version if info else "",
        backend=info.backend if info else "",
        clock="device" if arrays.is_on_device else "host",
        steps=len(arrays.steps),
        probed=steps_left_out(run, arrays.model)[1].get("probed", 0),
        gradient_bytes=int(known_middle(arrays.by_step("gradient_bytes")) or 0),
        least_wire_bytes=known_middle(sent, 0.0),
        most_wire_bytes=known_middle(sent, 1.0),
        buckets=_buckets(arrays),
        unaligned=tuple(run.unaligned),
        waits_unknown=waits_unknown,
        late=late_ranks(arrays),
        closed=all(track.records.closed for track in run.tracks),
        is_sharded=arrays.is_sharded,
        every=run.every,
        beside=models_beside(run, arrays.model),
    )


def _buckets(arrays: StepArrays) -> tuple[BucketKey, ...]:
    known = arrays.entries
    sizes = arrays.detailed.bucket_bytes.tolist()
    return tuple(
        BucketKey(
            index,
            int(size),
            tuple((p.name, p.shape) for p in known[index].parameters) if index in known else (),
            str(arrays.units[index]) if index in arrays.units else None,
        )
        for index, size in zip(arrays.buckets.tolist(), sizes, strict=True)
    )


TITLES = {
    "probe": "hooktrace's own probes",
    "turn": "turn",
    "compress": "compress",
    "queue": "queue",
    "wait": "wait for the last rank",
    "transfer": "wire transfer",
    "wire": "wire",
    "decompress": "decompress",
    "hook": "the hook's call",
    "pending": "the hook's future",
    "between": "between stages",
    "exposed": "exposed",
    "calls": "rest of the calls",
    "all_calls": "the hook's calls",
    "compute": "outside communication",
}
"""Of the parts of a step, by key."""

Grouping = dict[str, tuple[str, ...]]
"""Kinds of ``step_parts`` that are one part, by its key."""


def grouping(sides: Sequence[Measures]) -> Grouping:
    """Return what can be told apart on all sides.

    Of an opaque hook no stage is seen, so beside another hook only the exposed time is compared.
    """
    opaque = [is_opaque(one) for one in sides]
    if any(opaque) and not all(opaque):
        return {"exposed": KINDS}
    found: Grouping = {kind: (kind,) for kind in KINDS if any(_occurs(m, kind) for m in sides)}
    if any(one.facts.waits_unknown is not None for one in sides):
        for kind in ("wait", "transfer"):
            found.pop(kind, None)
        found["wire"] = ("wait", "transfer")
    return found


def is_opaque(one: Measures) -> bool:
    """Return whether no stage of the hook is seen, only its call and its future."""
    return _occurs(one, "hook") or _occurs(one, "pending")


def _occurs(one: Measures, kind: str) -> bool:
    at = KINDS.index(kind)
    return bool(one.parts.busy_in[at].any() or one.parts.exposed_in[at].any())


def exposed_parts(one: Measures, kinds: Sequence[str]) -> Floats:
    """Return the exposed time in some kinds together, (steps, buckets)."""
    found: Floats = one.parts.exposed_in[[KINDS.index(kind) for kind in kinds]].sum(axis=0)
    return found


def step_table(one: Measures, of: Grouping) -> dict[str, Floats]:
    """Return the parts of each step, by key, (steps,): they add up to its period."""
    parts = one.parts
    found = {key: exposed_parts(one, kinds).sum(axis=1) for key, kinds in of.items()}
    if "compress" in found or "exposed" not in found:
        found["compress"] = found.get("compress", np.zeros_like(parts.period)) + parts.compress
        found["calls"] = parts.calls
    else:
        found["all_calls"] = parts.calls + parts.compress
    found["compute"] = parts.period - sum(found.values())
    return found


_LOSS = re.compile(r"(?<![a-z])loss(?![a-z])", re.IGNORECASE)


def losses(run: Path) -> dict[str, Series]:
    """Return the scalars of a run whose tag is like loss, by tag; none without tensorboard.

    Looked for under the logdir, or where the folder of the record files itself was given, beside
    it, but not in folders that have hooktrace's own event files alone.  A tag is like loss where
    its last part is, or where the part before it is: ``train/loss``, ``Loss/train``.
    """
    folders = list(_folders(run))
    if not folders or not _has_tensorboard():
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, Series] = {}
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            if is_loss(tag):
                rows = {event.step: event.value for event in events.Scalars(tag)}
                steps = sorted(step for step, value in rows.items() if np.isfinite(value))
                values = [float(rows[step]) for step in steps]
                found.setdefault(tag, Series(np.array(steps, np.float64), np.array(values)))
    return found


def is_loss(tag: str) -> bool:
    """Return whether a tag is like loss, and not hooktrace's own."""
    parts = tag.split("/")
    return parts[0] != "hooktrace" and any(_LOSS.search(part) for part in parts[-2:])


def _folders(run: Path) -> Iterator[Path]:
    root = run.parent.parent if run.name == "hooktrace" and run.parent.name == "plugins" else run
    files = root.rglob("events.out.tfevents.*")
    theirs = [path for path in files if not path.name.endswith(".hooktrace")]
    endless = {path.parent for path in theirs if not path.is_file()}  # a pipe, a link to a device
    yield from sorted({path.parent for path in theirs} - endless)


def loss_difference(
    a: dict[str, Series], b: dict[str, Series]
) -> tuple[str, Difference | None, str | None]:
    """Return the tag that is compared, the difference, or why there is none.

    Steps that both runs have, of these the later half: a loss falls, so only equal steps can be
    compared, and those at the end matter.
    """
    shared = sorted(a.keys() & b.keys(), key=lambda tag: ("val" in tag or "eval" in tag, tag))
    if not shared:
        return "", None, _why_none(a, b)
    tag = shared[0]
    steps, at_a, at_b = np.intersect1d(a[tag].steps, b[tag].steps, return_indices=True)
    late = slice(len(steps) // 2, None)
    if not len(steps):
        return tag, None, f"the runs have no step in common that has {tag}"
    return tag, paired(a[tag].values[at_a][late], b[tag].values[at_b][late]), None


def _has_tensorboard() -> bool:
    return find_spec("tensorboard") is not None


def _why_none(a: dict[str, Series], b: dict[str, Series]) -> str:
    if not _has_tensorboard():
        return "tensorboard, which reads it, is not installed: pip install 'hooktrace[view]'"
    if not a and not b:
        return "no TensorBoard scalar like loss lies beside the record files"
    if a and b:
        return f"the runs have no tag in common: {', '.join(sorted(a))}; {', '.join(sorted(b))}"
    return f"only one of the runs has a scalar like loss: {', '.join(sorted(a or b))}"
