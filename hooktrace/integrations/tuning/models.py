"""Models of a job that is tuned, and the hooks that take turns in them.

    DDP made --_made--> DDPTurns, told of each forward pass
        in the first, or when the script registers --take--> a traced hook a label
    root of FSDP2 settled, in its first call --_called--> Turns; its reduce-scatter changes
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
from .turns import OWN, TURN, Part, Turns, plan, refuse

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ...tracing.traced_hook import Hook
    from ...tracing.tracer import Tracer

SHARDED = {one.label: one for one in SHARDED_HOOKS if one.takes_place_of == "reduce_scatter"}
"""What can take turns in a sharded model, by label."""
_DO_MORE = ("optimizer_overlap_hooks", "ddp_zero_hook", "mixed_precision_hooks")
"""Modules of torch whose hooks step an optimizer, or cast parameters."""
_STEPS = 100
"""Of optimizers, without a model; some train a part by itself before they make it."""

_turns: weakref.WeakKeyDictionary[Any, Turns | None] = weakref.WeakKeyDictionary()
"""By a DDP model's reducer, or by sharded model: on a model they would go into its copies."""


def _is_asked_for(ranks: int) -> bool:
    """Count a model that so many ranks share; returns whether its steps are of interest."""
    import torch.distributed as dist

    if dist.get_world_size() < 2:
        refuse("the job has one rank, which sends nothing; start it with two or more")
    if ranks != dist.get_world_size():
        return False
    Turns.made += 1
    return plan().model in (None, Turns.made)


class DDPTurns(Turns):
    """Of a DDP model."""

    _tracers: tuple[Tracer, ...] = ()

    def take(
        self, ddp: DistributedDataParallel, hook: Hook, state: Any, call: Callable[..., None]
    ) -> tuple[Hook, Any]:
        """Have the plan's hooks take turns with the model's own; returns what goes first.

        ``call``: given the hook and the state that take the model's buckets from then on.
        """
        from ...tracing.trace import trace
        from ...tracing.tracer import Tracer

        hook = getattr(hook, "__wrapped__", hook) if getattr(hook, "is_traced", False) else hook
        self.seen["hook"] = name = str(getattr(hook, "__qualname__", type(hook).__qualname__))
        if does_more(hook):
            refuse(
                f"the job's own hook, {name}, does more than average gradients, so others cannot "
                "stand in for it; tune the job without it"
            )
        ready = {OWN: (hook, state)}
        for one in candidates():
            if one.name in self.plan.hooks:
                try:
                    one.hook.check_model(ddp.module)
                    # PowerSGD at work from its second step on.
                    made = one.make_state(ddp.process_group, **one.check_options)
                    one.hook.check_state(made)
                    ready[one.name] = one.hook, made
                except (TypeError, ValueError) as error:
                    self.seen["refused"][one.name] = str(error)
        for tracer in self._tracers:  # the script has replaced its hook
            tracer.close()
        # Probes come in the first step of each turn, which does not count.
        self._tracers = tuple(Tracer([Part(label)], error_every=TURN) for label in ready)
        for tracer, label in zip(self._tracers, ready, strict=True):
            plain, its_state = ready[label]
            traced = trace(plain, model=type(ddp.module).__name__, tracer=tracer)
            traced.learn(ddp)
            traced.notices.rest()  # it is not called for a round, by no fault of the script's
            ready[label] = traced, its_state
        self.begin(ready, lambda label: call(*ready[label]))
        return ready[OWN]


def does_more(hook: Hook) -> bool:
    """Return whether a hook is known to do more than to average."""
    where = str(getattr(hook, "__module__", ""))
    return getattr(hook, "has_effects", False) or where.endswith(_DO_MORE)


def _patch_ddp(module: ModuleType) -> None:
    """Have models made with the plan's limit of bucket sizes, and told of each forward pass."""
    from ...tracing import export

    export.is_measured = True
    patches.make_with_cap(module.DistributedDataParallel, lambda _: plan().cap)
    patches.replace(module.DistributedDataParallel, "forward", _stepping)
    patches.when_made(module.DistributedDataParallel, _made)


def _made(ddp: DistributedDataParallel) -> None:
    """Take note of a model that was just made; without hooks that take turns it stays as it is."""
    from ...tracing.hookless import has_buckets

    if not _is_asked_for(ddp.process_group.size()):
        return
    if not has_buckets(ddp):
        refuse(
            "the compiled python reducer has no buckets, so no hook can be tuned; set "
            "torch._dynamo.config.optimize_ddp = True"
        )
    name, cap = type(ddp.module).__name__, round(ddp.bucket_bytes_cap / 2**20, 3)
    # Without bucket_cap_mb the first bucket has a limit of its own.
    first = 1.0 if getattr(ddp, "bucket_bytes_cap_default", False) else cap
    said = {"kind": "DDP", "model": name, "cap": cap, "first_cap": first}
    _turns[ddp.reducer] = turns = DDPTurns(ddp.module, Turns.made, **said)
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
        if turns.plan.model is not None:
            from ..models import average

            average(self)  # before the first step, so that it is the first of a turn
        turns.step()
        return original(self, *inputs, **options)

    return forward


def _called(root: nn.Module) -> None:
    """Take note of a sharded model, a root of which is called for the first time."""
    import torch

    from ...fsdp.torch_groups import groups_of
    from ...fsdp.traced_unit import PLAIN

    model = outermost(root)
    if model in _turns:  # each of its units is a root
        return
    _turns[model] = None
    groups, said = list(groups_of(model)), {"kind": "fully_shard", "cap": None, "hook": PLAIN}
    if not _is_asked_for(min((one.ranks for one in groups), default=0)):
        return
    _turns[model] = turns = Turns(model, Turns.made, model=name_of(model), **said)
    if turns.plan.model is not None:
        _take_sharded(turns, model)

    def step(*_: Any) -> None:
        if torch.is_grad_enabled() and groups[0].reduces:
            turns.step()

    model.register_forward_pre_hook(step, prepend=True)
    step()


def _take_sharded(turns: Turns, model: nn.Module) -> None:
    """Have the plan's reduce-scatters take turns, while the model is called for the first time."""
    from ...fsdp.trace import trace
    from ...tracing.tracer import Tracer

    hooks = {OWN: None} | {label: SHARDED[label].make() for label in turns.plan.hooks}
    switches: list[tuple[int, str]] = []

    def label_of(step: int) -> str:
        return next((label for first, label in reversed(switches) if first <= step), OWN)

    def change(label: str) -> None:
        switches.append((traced.next_step, label))
        traced.reduce_by(hooks[label])

    tracer = Tracer([Part(label, label_of) for label in hooks], error_every=TURN)
    # Traced with a hook, so that it is checked, though its own collective begins.
    *_, hook = hooks.values()
    traced = trace(model, tracer=tracer, name=name_of(model), reduce_scatter=hook)
    traced.in_forward(model)
    turns.begin(hooks, change)


def _refuse_others(optimizers: ModuleType) -> None:
    """End a job that trains without a model that can be tuned; ``optimizers``: torch's module."""
    left = iter(range(_STEPS))

    def stepped(*_: Any) -> None:
        if Turns.made:
            handle.remove()
        elif next(left, None) is None:
            refuse(
                "the job trains, and no model of it is under DDP, or under fully_shard, on all of "
                "its ranks, so there is no hook to tune; pass a command that trains one"
            )

    handle = optimizers.register_optimizer_step_post_hook(stepped)


PATCHES = {
    patches.DDP: _patch_ddp,
    patches.FSDP: lambda fsdp: watch(fsdp, _called),
    "torch.optim.optimizer": _refuse_others,
}
"""What is done to torch's modules, once they are imported."""
