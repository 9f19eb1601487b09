"""What takes turns in a job that is tuned: hooks of a DDP model, or reduce-scatters of FSDP2.

Plan.hooks, the model's own --DDPTurns--> a traced hook each, with a tracer of its own
                            --ShardedTurns--> one traced model; its steps by whose turn they are
steps of each --Records--> exposed time, bytes, error, failure; record files too, with --out
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...hooks.sharded import SHARDED_HOOKS
from ...records import AnomalyRecord, Batch, BucketRecord, CompletedStep
from .plan import OWN, TURN
from .turns import Turns

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ...tracing.traced_hook import Hook
    from ...tracing.tracer import Tracer

SHARDED = {one.label: one for one in SHARDED_HOOKS if one.takes_place_of == "reduce_scatter"}
"""What can take turns in a sharded model, by label."""
_DO_MORE = ("optimizer_overlap_hooks", "ddp_zero_hook", "mixed_precision_hooks")
"""Modules of torch whose hooks step an optimizer, or cast parameters."""


class Records:
    """An exporter that keeps the steps of hooks, by label, and writes files of each if asked."""

    measures_the_job = True
    """So that it is used where the script's own exporters are not (``tracing/export.py``)."""

    def __init__(
        self, labels: Sequence[str], label_of: Callable[[int], str], folder: Path | None
    ) -> None:
        from ...exporters import RecordFileExporter

        self._label_of = label_of
        self._steps: dict[str, list[CompletedStep]] = {label: [] for label in labels}
        self._stages: dict[tuple[int, int], str] = {}
        self._files = (
            {}
            if folder is None
            else {one: RecordFileExporter(folder / one.replace(" ", "-")) for one in labels}
        )

    def export(self, batch: Batch) -> None:
        """Keep each step where it belongs; in files all other records go to each folder."""
        from msgspec.structs import replace

        for anomaly in batch.of(AnomalyRecord):
            self._stages[anomaly.step, anomaly.bucket] = anomaly.stage
        for label in self._steps:
            steps = tuple(one for one in batch.steps if self._label_of(one[0].step) == label)
            self._steps[label] += steps
            if label in self._files and (steps or batch.records):
                self._files[label].export(replace(batch, steps=steps))

    def close(self) -> None:
        """Write out what the files hold."""
        for file in self._files.values():
            file.close()

    def told(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each hook, by label.

        Exposed time, ns, and bytes of a step: medians.  ``error``: relative L2, the largest of a
        bucket.  ``failed``: whether its first failure was in a collective, and what it was.
        """
        return {label: self._told(steps) for label, steps in self._steps.items()}

    def _told(self, completed: Sequence[CompletedStep]) -> dict[str, Any]:
        counted = [step for step, _ in completed if step.counts]
        buckets = [bucket for _, of_step in completed for bucket in of_step]
        errors = (one.error.relative_l2 for one in buckets if one.error is not None)
        return {
            "exposed_ns": _median(step.exposed_ns for step in counted),
            "wire_bytes": _median(step.wire_bytes for step in counted),
            "error": max((one for one in errors if one is not None), default=None),
            "failed": next(self._failures(buckets), None),
        }

    def _failures(self, buckets: Iterable[BucketRecord]) -> Iterator[tuple[bool, str]]:
        for one in buckets:
            if one.exception is not None:
                yield self._stages.get((one.step, one.bucket)) == "wire", one.exception


def _median(values: Iterable[int | None]) -> float | None:
    known = [one for one in values if one is not None]
    return median(known) if known else None


class _Recorded(Turns):
    """A model with hooks that take turns, or with none before ``take``."""

    _recorded: tuple[tuple[Tracer, Records], ...] = ()

    def _tracer(self, labels: Sequence[str], label_of: Callable[[int], str]) -> Tracer:
        from ...tracing.tracer import Tracer

        folder = Path(self.plan.where).parent if self.plan.keep else None
        records = Records(labels, label_of, folder)
        # Probes come in the first step of every second turn, which does not count.
        tracer = Tracer([records], error_every=2 * TURN)
        self._recorded += ((tracer, records),)
        return tracer

    def _told(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for tracer, records in self._recorded:
            tracer.flush()
            found |= records.told()
        return found


class DDPTurns(_Recorded):
    """Of a DDP model: a traced hook each, with a state and a tracer of its own over all turns."""

    _ready: Mapping[str, tuple[Hook, Any]] = {}

    def take(
        self, ddp: DistributedDataParallel, hook: Hook, state: Any, call: Callable[..., None]
    ) -> tuple[Hook, Any]:
        """Have the plan's hooks take turns with the model's own; returns what goes first.

        ``call``: given the hook and the state that take the model's buckets from then on.
        """
        from ...hooks.catalogue import candidates

        for tracer, _ in self._recorded:  # the script has replaced its hook
            tracer.close()
        self._recorded = ()
        hook = getattr(hook, "__wrapped__", hook) if getattr(hook, "is_traced", False) else hook
        self._call, refused = call, {}
        ready = {OWN: self._traced(OWN, ddp, hook, state)}
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
                ready[one.name] = self._traced(one.name, ddp, one.hook, made)
        self._ready = ready
        own = str(getattr(hook, "__qualname__", type(hook).__qualname__))
        self._seen |= {"hook": own, "effects": effects, "refused": refused}
        self._begin(ready)
        return ready[OWN]

    def _traced(
        self, label: str, ddp: DistributedDataParallel, hook: Hook, state: Any
    ) -> tuple[Hook, Any]:
        from ...tracing.trace import trace

        tracer = self._tracer([label], lambda _: label)
        traced = trace(hook, model=type(ddp.module).__name__, tracer=tracer)
        traced.learn(ddp)
        traced.notices.rest()  # it is not called for a round, and that is no fault of the script's
        return traced, state

    def _change(self, label: str) -> None:
        if self._ready:
            self._call(*self._ready[label])


def does_more(hook: Hook) -> bool:
    """Return whether a hook is known to do more than to average."""
    where = str(getattr(hook, "__module__", ""))
    return getattr(hook, "has_effects", False) or where.endswith(_DO_MORE)


class ShardedTurns(_Recorded):
    """Of a model under ``fully_shard``, traced once; its reduce-scatter changes."""

    _hooks: Mapping[str, Any] = {}

    def take(self, model: nn.Module, name: str) -> None:
        """Have the plan's hooks take turns, while the model is called for the first time."""
        from ...fsdp.trace import trace
        from ...fsdp.traced_unit import PLAIN

        self._hooks = {OWN: None} | {label: SHARDED[label].make() for label in self.plan.hooks}
        self._switches: list[tuple[int, str]] = []
        tracer = self._tracer([*self._hooks], self._label_of)
        # Traced with a hook, so that it is probed, though its own collective begins.
        *_, hook = self._hooks.values()
        self._traced = trace(model, tracer=tracer, name=name, reduce_scatter=hook)
        self._traced.in_forward(model)
        self._change(OWN)
        self._seen["hook"] = PLAIN
        self._begin(self._hooks)

    def _change(self, label: str) -> None:
        if self._hooks:
            self._switches.append((self._traced.next_step, label))
            self._traced.reduce_by(self._hooks[label])

    def _label_of(self, step: int) -> str:
        return next((label for first, label in reversed(self._switches) if first <= step), OWN)
