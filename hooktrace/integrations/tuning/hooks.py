"""What takes turns in a job that is tuned: hooks of a DDP model, or reduce-scatters of FSDP2.

Plan.hooks, the model's own --DDPTurns--> a traced hook each
                            --ShardedTurns--> one traced model; records told apart by step
records of each --told_of--> exposed time, bytes, error, failure
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...hooks.sharded import SHARDED_HOOKS
from .plan import Plan
from .rounds import OWN, TURN
from .turns import Turns

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ...records import Batch
    from ...tracing.traced_hook import Hook
    from ...tracing.tracer import Tracer

SHARDED = {one.label: one for one in SHARDED_HOOKS if one.takes_place_of == "reduce_scatter"}
"""What can take turns in a sharded model, by label."""


class DDPTurns(Turns):
    """Of a DDP model: a traced hook each, with a state and a tracer of its own over all turns."""

    _tracers: dict[str, Tracer] = {}  # noqa: RUF012  # none until it takes turns

    def take(
        self, ddp: DistributedDataParallel, hook: Hook, state: Any, call: Callable[..., None]
    ) -> tuple[Hook, Any]:
        """Have the plan's hooks take turns with the model's own; returns what goes first.

        ``call``: given the hook and the state that take the model's buckets from then on.
        """
        from ...hooks.catalogue import candidates

        for tracer in self._tracers.values():  # the script has replaced its hook
            tracer.close()
        hook = getattr(hook, "__wrapped__", hook) if getattr(hook, "is_traced", False) else hook
        self._call, self._tracers, refused = call, {}, {}
        self._ready = {OWN: self._traced(OWN, ddp, hook, state)}
        effects = does_more(hook)
        for one in candidates():
            if one.name not in self.plan.hooks or effects:
                continue
            try:
                one.hook.check_model(ddp.module)
                # PowerSGD at work from its second step on.
                made = one.make_state(ddp.process_group, **one.check_options)
                one.hook.check_state(made)
            except (TypeError, ValueError) as error:
                refused[one.name] = str(error)
            else:
                self._ready[one.name] = self._traced(one.name, ddp, one.hook, made)
        own = str(getattr(hook, "__qualname__", type(hook).__qualname__))
        self._seen |= {"hook": own, "effects": effects, "refused": refused}
        self._begin(self._ready)
        return self._ready[OWN]

    def _traced(
        self, label: str, ddp: DistributedDataParallel, hook: Hook, state: Any
    ) -> tuple[Hook, Any]:
        from ...tracing.trace import trace

        tracer = self._tracers[label] = _tracer(self.plan, [label], lambda _: label)
        traced = trace(hook, model=type(ddp.module).__name__, tracer=tracer)
        traced.learn(ddp)
        traced.notices.rest()  # it is not called for a round, and that is no fault of the script's
        return traced, state

    def _change(self, label: str) -> None:
        if self._tracers:
            self._call(*self._ready[label])

    def _told(self) -> dict[str, dict[str, Any]]:
        return {label: told_of(tracer) for label, tracer in self._tracers.items()}


_DO_MORE = ("optimizer_overlap_hooks", "ddp_zero_hook", "mixed_precision_hooks")
"""Modules of torch whose hooks step an optimizer, or cast parameters."""


def does_more(hook: Hook) -> bool:
    """Return whether a hook is known to do more than to average."""
    where = str(getattr(hook, "__module__", ""))
    return getattr(hook, "has_effects", False) or where.endswith(_DO_MORE)


class ShardedTurns(Turns):
    """Of a model under ``fully_shard``, traced once; its reduce-scatter changes."""

    _hooks: Mapping[str, Any] = {}

    def take(self, model: nn.Module, name: str) -> None:
        """Have the plan's hooks take turns, while the model is called for the first time."""
        from ...fsdp.trace import trace
        from ...fsdp.traced_unit import PLAIN

        self._hooks = {OWN: None} | {label: SHARDED[label].make() for label in self.plan.hooks}
        self._firsts: list[int] = []
        self._labels: list[str] = []
        self._tracer = _tracer(self.plan, [*self._hooks], self._label_of)
        # Traced with a hook, so that it is probed, though its own collective begins.
        *_, hook = self._hooks.values()
        self._traced = trace(model, tracer=self._tracer, name=name, reduce_scatter=hook)
        self._traced.in_forward(model)
        self._change(OWN)
        self._seen["hook"] = PLAIN
        self._begin(self._hooks)

    def _change(self, label: str) -> None:
        if self._hooks:
            self._firsts.append(self._traced.next_step)
            self._labels.append(label)
            self._traced.reduce_by(self._hooks[label])

    def _label_of(self, step: int) -> str:
        return self._labels[max(0, bisect_right(self._firsts, step) - 1)]

    def _has(self, label: str, step: int) -> bool:
        return self._label_of(step) == label

    def _told(self) -> dict[str, dict[str, Any]]:
        return {label: told_of(self._tracer, partial(self._has, label)) for label in self._hooks}


def told_of(records: Tracer, has: Callable[[int], bool] = lambda _: True) -> dict[str, Any]:
    """Return what the records of a hook say, which has some of the steps.

    Exposed time, ns, and bytes of a step: medians.  ``error``: relative L2, the largest of a
    bucket.  ``failed``: whether its first failure was in a collective, and what it was.
    """
    steps = [one for one in records.steps() if has(one.step)]
    counted = [one for one in steps if one.complete and not one.warmup and not one.probed]
    buckets = [one for one in records.buckets() if has(one.step)]
    errors = (one.error.relative_l2 for one in buckets if one.error is not None)
    stages = {(one.step, one.bucket): one.stage for one in records.anomalies()}
    failed = (
        (stages.get((one.step, one.bucket)) == "wire", one.exception)
        for one in buckets
        if one.exception is not None
    )
    return {
        "exposed_ns": _median(one.exposed_ns for one in counted),
        "wire_bytes": _median(one.wire_bytes for one in counted),
        "error": max((one for one in errors if one is not None), default=None),
        "failed": next(failed, None),
    }


def _median(values: Iterable[int | None]) -> float | None:
    known = [one for one in values if one is not None]
    return median(known) if known else None


class Files:
    """An exporter: record files, a folder for each hook that takes turns."""

    measures_the_job = True
    """So that it is used where the script's own exporters are not (``tracing/export.py``)."""

    def __init__(self, folder: Path, labels: Sequence[str], label_of: Callable[[int], str]) -> None:
        from ...exporters import RecordFileExporter

        self._label_of = label_of
        self._files = {one: RecordFileExporter(folder / one.replace(" ", "-")) for one in labels}

    def export(self, batch: Batch) -> None:
        """Write each step where it belongs, and all other records to each folder."""
        from msgspec.structs import replace

        for label, file in self._files.items():
            steps = tuple(one for one in batch.steps if self._label_of(one[0].step) == label)
            if steps or batch.records:
                file.export(replace(batch, steps=steps))

    def close(self) -> None:
        """Write out what the files hold."""
        for file in self._files.values():
            file.close()


def _tracer(wanted: Plan, labels: Sequence[str], label_of: Callable[[int], str]) -> Tracer:
    from ...tracing.tracer import Tracer

    files = [Files(Path(wanted.where).parent, labels, label_of)] if wanted.keep else []
    # Probes come in the first step of every second turn, which does not count.
    return Tracer(files, error_every=2 * TURN, keep_steps=100_000, keep_buckets=100_000)
