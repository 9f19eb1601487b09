"""Models of a job that is tuned, and the hooks that take turns in them.

    DDP made --made--> DDPTurns, told of each forward pass
        in the first, or when the script registers --take--> a traced hook a label
    root of FSDP2 settled, in its first call --called--> Turns; its reduce-scatter changes
    an optimizer steps, no model was found --_refuse_others--> the job ends: nothing can be tuned

A model that a part of the ranks share is none: the others do not come to where its turns end.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...hooks.catalogue import candidates
from ...hooks.sharded import SHARDED_HOOKS
from .. import patches
from ..sharded import name_of, outermost, watch
from .plan import OWN, plan
from .turns import Turns, refuse

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ...tracing.traced_hook import Hook

SHARDED = {one.label: one for one in SHARDED_HOOKS if one.takes_place_of == "reduce_scatter"}
"""What can take turns in a sharded model, by label."""
_DO_MORE = ("optimizer_overlap_hooks", "ddp_zero_hook", "mixed_precision_hooks")
"""Modules of torch whose hooks step an optimizer, or cast parameters."""
_STEPS = 100
"""Of optimizers, without a model; some train a part by itself before they make it."""

_turns: weakref.WeakKeyDictionary[Any, Turns | None] = weakref.WeakKeyDictionary()
"""By a DDP model's reducer, or by sharded model: on a model they would go into its copies."""


class DDPTurns(Turns):
    """Of a DDP model."""

    def take(
        self, ddp: DistributedDataParallel, hook: Hook, state: Any, call: Callable[..., None]
    ) -> tuple[Hook, Any]:
        """Have the plan's hooks take turns with the model's own; returns what goes first.

        ``call``: given the hook and the state that take the model's buckets from then on.
        """
        while self.tracers:  # the script has replaced its hook
            self.tracers.pop()[0].close()
        hook = getattr(hook, "__wrapped__", hook) if getattr(hook, "is_traced", False) else hook
        name = str(getattr(hook, "__qualname__", type(hook).__qualname__))
        if does_more(hook):
            refuse(
                f"the job's own hook, {name}, does more than average gradients, so others cannot "
                "stand in for it; tune the job without it"
            )
        self.seen["hook"] = name
        ready = {OWN: self._traced(OWN, ddp, hook, state)}
        for one in candidates():
            if one.name not in self.plan.hooks:
                continue
            try:
                one.hook.check_model(ddp.module)
                # PowerSGD at work from its second step on.
                made = one.make_state(ddp.process_group, **one.check_options)
                one.hook.check_state(made)
            except (TypeError, ValueError) as error:
                self.seen["refused"][one.name] = str(error)
            else:
                ready[one.name] = self._traced(one.name, ddp, one.hook, made)
        self.begin(ready, lambda label: call(*ready[label]))
        return ready[OWN]

    def _traced(
        self, label: str, ddp: DistributedDataParallel, hook: Hook, state: Any
    ) -> tuple[Hook, Any]:
        from ...tracing.trace import trace

        tracer = self.tracer([label], lambda _: label)
        traced = trace(hook, model=type(ddp.module).__name__, tracer=tracer)
        traced.learn(ddp)
        traced.notices.rest()  # it is not called for a round, and that is no fault of the script's
        return traced, state


def does_more(hook: Hook) -> bool:
    """Return whether a hook is known to do more than to average."""
    where = str(getattr(hook, "__module__", ""))
    return getattr(hook, "has_effects", False) or where.endswith(_DO_MORE)


def _take_sharded(turns: Turns, model: nn.Module, name: str) -> None:
    """Have the plan's reduce-scatters take turns, while the model is called for the first time."""
    from ...fsdp.trace import trace

    hooks = {OWN: None} | {label: SHARDED[label].make() for label in turns.plan.hooks}
    switches: list[tuple[int, str]] = []

    def label_of(step: int) -> str:
        return next((label for first, label in reversed(switches) if first <= step), OWN)

    def change(label: str) -> None:
        switches.append((traced.next_step, label))
        traced.reduce_by(hooks[label])

    tracer = turns.tracer([*hooks], label_of)
    # Traced with a hook, so that it is probed, though its own collective begins.
    *_, hook = hooks.values()
    traced = trace(model, tracer=tracer, name=name, reduce_scatter=hook)
    traced.in_forward(model)
    turns.begin(hooks, change)


def _patch_ddp(module: ModuleType) -> None:
    """Have models made with the plan's limit of bucket sizes, and told of each forward pass."""
    from ...tracing import export

    ddp = module.DistributedDataParallel

    def cap_of(_: nn.Module) -> float | None:
        wanted = plan()
        return wanted.cap if wanted.model == Turns.made else None

    export.is_measured = True
    patches.make_with_cap(ddp, cap_of)
    patches.replace(ddp, "forward", _stepping)
    patches.when_made(ddp, made)


def _number(ranks: int) -> int | None:
    """Return the number of a model that was found; ``None`` where it is not asked for."""
    import torch.distributed as dist

    if ranks != dist.get_world_size():
        return None
    number, Turns.made = Turns.made, Turns.made + 1
    return number if plan().model in (None, number) else None


def made(ddp: DistributedDataParallel) -> None:
    """Take note of a model that was just made; without hooks that take turns it stays as it is."""
    from ...tracing.hookless import has_buckets

    number = _number(ddp.process_group.size())
    if number is None:
        return
    name, cap = type(ddp.module).__name__, ddp.bucket_bytes_cap / 2**20
    _turns[ddp.reducer] = turns = DDPTurns(ddp.module, number, kind="DDP", model=name, cap=cap)
    if not has_buckets(ddp):
        refuse(
            "the compiled python reducer has no buckets, so no hook can be tuned; set "
            "torch._dynamo.config.optimize_ddp = True"
        )
    if turns.plan.model is not None:
        from ..models import know

        know(ddp, turns)


def _stepping(original: Any) -> Any:
    import torch

    def forward(self: Any, *inputs: Any, **options: Any) -> Any:
        turns = _turns.get(self.reducer)
        if turns is None or not (torch.is_grad_enabled() and self.require_backward_grad_sync):
            return original(self, *inputs, **options)
        if self._join_config.enable:
            refuse(
                "the job trains within DDP.join(), where ranks need not make the same steps, and "
                "hooks can take turns only at the same step of all ranks; give all ranks as many "
                "batches, and tune it without join(), or with join(enable=False)"
            )
        turns.step()
        turns.is_called = True
        try:
            return original(self, *inputs, **options)
        finally:
            turns.is_called = False

    return forward


def called(root: nn.Module) -> None:
    """Take note of a sharded model, a root of which is called for the first time."""
    import torch

    from ...fsdp.torch_groups import groups_of
    from ...fsdp.traced_unit import PLAIN

    model = outermost(root)
    if model in _turns:  # each of its units is a root
        return
    _turns[model] = None
    groups, name = list(groups_of(model)), name_of(model)
    number = _number(min((one.ranks for one in groups), default=0))
    if number is None:
        return
    _turns[model] = turns = Turns(
        model, number, kind="fully_shard", model=name, cap=None, hook=PLAIN
    )
    if turns.plan.model is not None:
        _take_sharded(turns, model, name)

    def step(*_: Any) -> None:
        if torch.is_grad_enabled() and groups[0].reduces:
            turns.step()

    model.register_forward_pre_hook(step, prepend=True)
    step()


def _refuse_others(optimizers: ModuleType) -> None:
    """End a job that trains without a model that can be tuned; ``optimizers``: torch's module."""
    steps = 0

    def stepped(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if Turns.made:
            handle.remove()
        elif steps == _STEPS:
            refuse(
                "the job trains, and no model of it is under DDP, or under fully_shard, on all of "
                "its ranks, so there is no hook to tune; pass a command that trains one"
            )

    handle = optimizers.register_optimizer_step_post_hook(stepped)


PATCHES = {
    patches.DDP: _patch_ddp,
    patches.FSDP: lambda fsdp: watch(fsdp, called),
    "torch.optim.optimizer": _refuse_others,
}
"""What is done to torch's modules, once they are imported."""
