"""What takes turns in a job that is tuned: hooks of a DDP model, or reduce-scatters of FSDP2.

Plan.hooks, the model's own --DDPHooks--> a traced hook each, with a state and a tracer of its
own over all its turns
--ShardedHooks--> one traced model, whose reduce-scatter changes;
its records are told apart by step
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...hooks.sharded import SHARDED_HOOKS
from .plan import Plan
from .rounds import OWN
from .told import Told

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ...exporters.base import Exporter
    from ...fsdp.hooks import ScatterHook
    from ...tracing.traced_hook import Hook
    from ...tracing.tracer import Tracer

SHARDED = {one.label: one for one in SHARDED_HOOKS if one.takes_place_of == "reduce_scatter"}
"""What can take turns in a sharded model, by label."""


class Hooks(Protocol):
    """What takes turns.

    ``own``: what the model has without us, and ``effects`` whether it does more than average.
    ``refused``: why some of the plan's do not, by label.
    """

    own: str
    effects: bool
    refused: dict[str, str]

    @property
    def labels(self) -> Sequence[str]:
        """Whose turns there are."""

    def change(self, label: str) -> None:
        """Give the model's gradients to another one, from the step that begins on."""

    def told(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each, by label (``Told.of``)."""

    def close(self) -> None:
        """Let go of them: the script has registered another hook."""


class DDPHooks:
    """Hooks of one DDP model; ``call_next`` is given the one that its reducer calls from then on.

    ``first``: its own, traced, and the state of that.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        own: tuple[Hook, Any],
        call_next: Callable[[Hook, Any], None],
        wanted: Plan,
    ) -> None:
        from ...hooks.catalogue import candidates

        hook, state = own
        hook = getattr(hook, "__wrapped__", hook) if getattr(hook, "is_traced", False) else hook
        self.own = str(getattr(hook, "__qualname__", type(hook).__qualname__))
        self.effects = _does_more(hook)
        self.refused: dict[str, str] = {}
        self._plan, self._call_next = wanted, call_next
        self._ready: dict[str, tuple[Hook, Any]] = {}
        self._told: dict[str, tuple[Tracer, Told]] = {}
        self._add(OWN, ddp, hook, state)
        self.first = self._ready[OWN]
        for one in candidates():
            if one.name not in wanted.hooks or self.effects:
                continue
            candidate = one.hook
            try:
                candidate.check_model(ddp.module)
                # PowerSGD at work from its second step on.
                made = one.make_state(ddp.process_group, **one.check_options)
                candidate.check_state(made)
            except (TypeError, ValueError) as error:
                self.refused[one.name] = str(error)
            else:
                self._add(one.name, ddp, candidate, made)

    def _add(self, label: str, ddp: DistributedDataParallel, hook: Hook, state: Any) -> None:
        from ...tracing.trace import trace

        tracer, told = _tracer(self._plan, [label], lambda _: label)
        traced = trace(hook, model=type(ddp.module).__name__, tracer=tracer)
        traced.learn(ddp)
        traced.notices.rest()  # it is not called for a round, and that is no fault of the script's
        self._told[label], self._ready[label] = (tracer, told), (traced, state)

    @property
    def labels(self) -> Sequence[str]:
        """Whose turns there are."""
        return [*self._ready]

    def change(self, label: str) -> None:
        """Have another hook called from the next bucket on."""
        self._call_next(*self._ready[label])

    def told(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each."""
        for tracer, _ in self._told.values():
            tracer.flush()
        return {label: told.of(label) for label, (_, told) in self._told.items()}

    def close(self) -> None:
        """Let go of them."""
        for tracer, _ in self._told.values():
            tracer.close()


_DO_MORE = ("optimizer_overlap_hooks", "ddp_zero_hook", "mixed_precision_hooks")
"""Modules of torch whose hooks step an optimizer, or cast parameters."""


def _does_more(hook: Hook) -> bool:
    """Return whether a hook is known to do more than to average."""
    where = str(getattr(hook, "__module__", ""))
    return getattr(hook, "has_effects", False) or where.endswith(_DO_MORE)


class ShardedHooks:
    """Reduce-scatters of one sharded model; made while the model is called for the first time."""

    def __init__(self, model: nn.Module, name: str, wanted: Plan) -> None:
        from ...fsdp.trace import trace
        from ...fsdp.traced_unit import PLAIN

        self.own, self.effects = PLAIN, False
        self.refused: dict[str, str] = {}
        self._hooks: dict[str, ScatterHook | None] = {OWN: None}
        for label in wanted.hooks:
            self._hooks[label] = SHARDED[label].make()
        self._from: list[int] = []
        self._labels: list[str] = []
        self._tracer, self._told = _tracer(wanted, self.labels, self._label_of)
        # Traced with a hook, so that it is probed, though its own collective begins.
        first = next((one for one in self._hooks.values() if one is not None), None)
        self._traced = trace(model, tracer=self._tracer, name=name, reduce_scatter=first)
        self._traced.in_forward(model)
        self.change(OWN)

    @property
    def labels(self) -> Sequence[str]:
        """Whose turns there are."""
        return [*self._hooks]

    def change(self, label: str) -> None:
        """Have gradients reduced by another one in the step that begins."""
        self._from.append(self._traced.next_step)
        self._labels.append(label)
        self._traced.reduce_by(self._hooks[label])

    def _label_of(self, step: int) -> str:
        return self._labels[max(0, bisect_right(self._from, step) - 1)]

    def told(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each."""
        self._tracer.flush()
        return {label: self._told.of(label) for label in self._hooks}

    def close(self) -> None:
        """Give the model its own collectives back."""
        self._traced.remove()
        self._tracer.close()


def _tracer(
    wanted: Plan, labels: Sequence[str], label_of: Callable[[int], str]
) -> tuple[Tracer, Told]:
    from ...exporters import RecordFileExporter
    from ...tracing.tracer import Tracer

    files: dict[str, Exporter] = {}
    if wanted.keep:
        files = {
            one: RecordFileExporter(Path(wanted.folder, one.replace(" ", "-"))) for one in labels
        }
    told = Told(label_of, files)
    # Probes come in the first step of every second turn, which does not count.
    return Tracer([told], error_every=2 * wanted.turn), told
