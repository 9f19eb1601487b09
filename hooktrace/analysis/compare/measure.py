"""What is compared of a run: a number a step, the ranks of a step put together.

    Run --settled_steps--> StepArrays --+--means over ranks--> Measures
                                        +--step_parts------------^

Measures of both --grouping--> what can be told apart in both --step_table--> parts a step
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import asdict

from ..run import Run
from ..run.columns import Floats
from ..run.dense import StepArrays, settled_steps
from ..run.missing import missing
from ..run.parts import KINDS, StepParts, step_parts
from ..run.source import ModelSource, model_source, of_step, parameter_shapes


class RunFacts(ModelSource, frozen=True, kw_only=True):
    """One model of one run, which the user called ``name``.

    ``shapes``: of its parameters, in order.  ``is_plain``: no stage of the hook is seen, only its
    call and its future.  ``missing``: what the files do not say, in sentences.
    """

    name: str
    run_id: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    torch_version: str
    backend: str
    bucket_count: int
    shapes: tuple[tuple[int, ...], ...]
    is_plain: bool = False
    missing: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """What communicates, of which there are several."""
        return "collectives of units" if self.is_sharded else "buckets"


@dataclass(frozen=True, slots=True)
class Measures:
    """One model of one run.

    ``series``: by quantity, ns, bytes or a share of each step that tells, in order.  ``parts``: of
    the steps of which all is known.
    """

    facts: RunFacts
    series: dict[str, Floats]
    parts: StepParts


def measure(run: Run, model: str, name: str) -> Measures | None:
    """Return what is compared of a model in a run; ``None`` where no step of it has settled."""
    arrays = settled_steps(run, model)
    if arrays is None:
        return None
    parts = step_parts(arrays.sample).of_known()
    communication = zip(KINDS, parts.busy_in, strict=True)
    series = _series(arrays) | {kind: values for kind, values in communication if values.any()}
    known = {key: values[~np.isnan(values)] for key, values in series.items()}
    return Measures(_facts(run, arrays, parts, name), known, parts)


def _series(arrays: StepArrays) -> dict[str, Floats]:
    exposed, communication = of_step(arrays.exposed), of_step(arrays.communication)
    sent, errors = of_step(arrays.by_step("wire_bytes")), arrays.errors_by_step()
    return {
        "period": of_step(arrays.period),
        "exposed": exposed,
        "communication": communication,
        "wire": of_step(arrays.in_flight("wire_in_flight")),
        # Of a plain hook some steps alone may tell.
        "wire_bytes": arrays.sent() if np.isnan(sent).all() else sent,
        "overlap": 1 - exposed / communication,
        "error": np.array([np.mean(of) for _, of in sorted(errors.items())], np.float64),
    }


def _has(parts: StepParts, kind: str) -> bool:
    """Return whether any bucket was in a kind of ``KINDS``."""
    at = KINDS.index(kind)
    return bool(parts.busy_in[at].any() or parts.exposed_in[at].any())


def _facts(run: Run, arrays: StepArrays, parts: StepParts, name: str) -> RunFacts:
    info = run.info
    return RunFacts(
        **asdict(model_source(run, arrays)),
        name=name,
        run_id=info.run_id if info else "",
        ranks=tuple(arrays.ranks),
        hosts=tuple(sorted(run.hosts)),
        torch_version=info.torch_version if info else "",
        backend=info.backend if info else "",
        bucket_count=len(arrays.buckets),
        shapes=tuple(sorted(parameter_shapes(arrays))),
        is_plain=_has(parts, "hook") or _has(parts, "future_wait"),
        missing=tuple(missing(run)),
    )


TITLES = {
    "check": "hooktrace's own checks",
    "wait": "straggler wait",
    "transfer": "wire transfer",
    "hook": "the hook's call",
    "future_wait": "future wait",
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

    Of a plain hook no stage is seen, so beside another hook only the exposed time is compared.
    """
    if a.facts.is_plain != b.facts.is_plain:
        return {"exposed": KINDS}
    found: Grouping = {x: (x,) for x in KINDS if _has(a.parts, x) or _has(b.parts, x)}
    if a.facts.split_unknown is not None or b.facts.split_unknown is not None:
        for kind in ("wait", "transfer"):
            found.pop(kind, None)
        found["wire"] = ("wait", "transfer")
    return found


def step_table(one: Measures, of: Grouping) -> dict[str, Floats]:
    """Return each step's period, and its parts, by key, (steps,): they add up to it."""
    parts = one.parts
    found: dict[str, Floats] = {
        key: parts.exposed_in[[KINDS.index(kind) for kind in kinds]].sum(axis=0)
        for key, kinds in of.items()
    }
    if "exposed" in found:
        found["all_calls"] = parts.calls + parts.compress
    else:
        found["compress"] = found.get("compress", np.zeros_like(parts.period)) + parts.compress
        found["calls"] = parts.calls
    found["compute"] = parts.period - sum(found.values())
    return {"period": parts.period, **found}
