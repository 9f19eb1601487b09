"""DDP models without a hook, seen from their process group (torch >= 2.14, on CPUs).

    reducer --all-reduce of a bucket--> the group's pre-hook: by its address, a slot -> OwnAllReduce
                                        the group's post-hook: its work
    timed steps: the work's future --> done;   others: the end of the pass (``pass_end.py``)
    an address that is new --> the slot that is next, of the layout that the reducer has told
    the first gradient after DDP has rebuilt its buckets --> the reducer is asked again

It is certain which model an all-reduce belongs to.  The engine itself has called: a script's own
collectives in backward come from a function of Python's.  And its tensor is where a bucket of this
model was before, or the node of the graph that runs accumulates a gradient of this model.  In
``join()`` DDP's own function all-reduces zeros for a rank whose data has ended.  The reducer must
not be asked inside a group's hook, where it holds its mutex; by a step's first gradient it has
rebuilt its buckets, and sent none.

Nothing here raises into training, or holds the model or its group.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..probes.compare import finite_parts, lengths_of
from ..probes.debug_checks import DebugResult
from ..probes.other_sampler import OtherSampler, close_window
from ..probes.schedule import OFF, Schedule
from ..staging import group_hooks
from ..staging.backward import current_pass, engine_code
from ..staging.calls import NOT_YET, Collective
from ..staging.groups import group_info
from ..staging.pass_end import AwaitedCall, is_timed, watch_pass
from ..staging.ring import RECORDING, Loss
from ..staging.slots import current_node
from .tracer import Tracer

if TYPE_CHECKING:
    from types import FrameType

    from ..staging.slots import BucketSlot, LayoutTracker
    from .traced_hook import HookNotices

logger = logging.getLogger("hooktrace")

_matching = getattr(DistributedDataParallel, "_match_all_reduce_for_bwd_pass", None)
_ZEROS = getattr(_matching, "__code__", None)
"""Of ``join()``: all-reduces zeros in the place of gradients."""


_CHECKS_AFTER = 3
"""Steps by which checks come after the multiples of ``error_every``: in a step that hooktrace has
looked at no times count, and those would be all that are timed of steps of another kind."""


class OwnAllReduce(AwaitedCall):
    """An all-reduce that DDP itself makes of a bucket; there is no hook that takes time.

    ``awaited``: torch's work, none where issuing it has raised.
    """

    __slots__ = ("arrived_by", "awaited", "bounded")

    def see(self, args: Any) -> None:
        """Take note of what was issued."""
        self.awaited = args.work
        if not self.bounded:
            self.call_when_done()

    def is_done(self, awaited: Any) -> bool:
        """Return whether a work is done."""
        # DDP waits for its future, which gloo completes before it says so of the work.
        return awaited.is_completed() or awaited.get_future().done()  # type: ignore[no-any-return]

    def call_when_done(self) -> None:
        """Have it called when its work is done."""
        work = self.awaited
        error = None if work is None else group_hooks.call_when_done(work, self)
        if error is not None:
            self.awaited = None
            self.lose_end(error)


_new = object.__new__


class HooklessModel:
    """Records what DDP sends for one model, whose names ``layout`` knows."""

    def __init__(
        self,
        ddp: DistributedDataParallel,
        tracer: Tracer,
        layout: LayoutTracker,
        notices: HookNotices,
    ) -> None:
        self._ddp = weakref.ref(ddp)
        self._tracer = tracer
        self._clock = tracer.clock
        self._layout = layout
        self._notices = notices
        self._info = group_info(ddp.process_group, "cpu")
        parameters = [p for p in ddp.module.parameters() if p.requires_grad]
        self._parameters = {id(p): weakref.ref(p) for p in parameters}
        self._dtypes = {p.dtype for p in parameters}
        self._is_lazy = getattr(ddp, "lazy_bucket_allocation", False)
        self._slots: list[BucketSlot] = []
        self._by_place: dict[int, BucketSlot] = {}
        every = tracer.error_every
        first = tracer.first_step + every + _CHECKS_AFTER % max(every, 1)
        self._checks = Schedule(first, every)
        self._others = OtherSampler(every)
        self._next_sample = min(self._checks.first, self._others.next_step) if every else OFF
        self._ask(ddp)
        self._group_hooks = group_hooks.hooks_of(ddp.process_group)
        self._group_hooks.models += (self,)
        # Its group outlives it, as a rule.
        self._end = weakref.finalize(ddp, self.leave)
        self._end.atexit = False
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        if not ddp._has_rebuilt_buckets and (ddp.static_graph or not ddp.find_unused_parameters):
            self._handles = [
                p.register_post_accumulate_grad_hook(self._see_rebuilt) for p in parameters
            ]

    def leave(self) -> None:
        """See nothing more: a hook takes the model's buckets from here on, or it is gone."""
        self._end.detach()  # or it holds this, and the tracer, for as long as the model is there
        hooks = self._group_hooks
        hooks.models = tuple(one for one in hooks.models if one is not self)
        close_window(self._others)
        self._by_place.clear()
        self._slots = []
        self._forget_gradients()
        self._parameters.clear()
        self._notices.stop_watching()

    def before(self, args: Any) -> OwnAllReduce | None:
        """Take note of a collective that is about to be issued; return the call, if it is one."""
        try:
            ready = self._clock()
            issuer = sys._getframe(2)  # below ``GroupHooks``
            tensor = None
            if issuer.f_code is engine_code:
                tensors = args.input_tensors
                if len(tensors) != 1:
                    return None
                tensor = tensors[0]
                slot = self._by_place.get(tensor.data_ptr())
                if (
                    slot is None
                    or slot.numel != tensor.numel()
                    or (slot.index == 0 and not self._is_without_hook(self._ddp()))
                ):
                    slot = self._meet(tensor) if args.name == group_hooks.ALL_REDUCE else None
            else:
                slot = self._meet_pythons(issuer, args)
            if slot is None:
                return None
            tracer, model, index = self._tracer, slot.model, slot.index
            # As ``model.enter`` does: each call costs a microsecond, caches cold.
            step = model.step
            step += index <= model.last_index
            model.step, model.last_index = step, index
            if tracer.state is not RECORDING:
                return None
            call = _new(OwnAllReduce)
            call.slot = slot
            call.step = step
            call.ready = call.launched = call.issued_at = ready
            call.collective = None
            call.done = NOT_YET
            call.clock = tracer.clock
            call.on_device = False
            call.awaited = call.arrived_by = None
            call.bounded = False
            call.operation = slot.collective
            calls = model.calls
            if calls.number == step:
                calls.append(call)
            else:
                model.begin_step(call, tracer.ring)
                calls = model.calls
                is_stamped = is_timed(model, step) or self._is_checked(step)
                calls.untimed = watch_pass(calls) and not is_stamped
            call.bounded = calls.untimed
            slot.last_call = call
            if tensor is None:
                call.join_dummy = True
            elif step >= self._next_sample:
                self._check(call, tensor)
            if slot.is_last:
                call.backward_end = NOT_YET if watch_pass(calls) else None
            return call
        except Exception as error:
            self._tracer.push(Loss.of_stamps(error))
            return None

    def _is_checked(self, step: int) -> bool:
        return step >= self._next_sample and self._checks.turn(step) is not None

    def _check(self, call: OwnAllReduce, tensor: torch.Tensor) -> None:
        """Check one of the step's buckets for NaN and inf, each in its turn."""
        slot, lengths = call.slot, lengths_of(call.slot.parameters)
        if call.step >= self._others.next_step:
            self._others.at(slot.model.name, call.step, call.ready, self._tracer)
        is_due = self._checks.takes(call.step, slot.index, len(self._slots))
        if is_due and sum(lengths) == tensor.numel() and slot.is_dense:
            flags = finite_parts(tensor, lengths)
            DebugResult(slot=slot, step=call.step).push(self._tracer, gradients=flags)
            call.stamp("entered")
            call.issued_at = call.entered or call.ready
        if slot.is_last:
            self._next_sample = min(self._checks.next_after(call.step), self._others.next_step)

    def _meet_pythons(self, issuer: FrameType, args: Any) -> BucketSlot | None:
        """Return the bucket of a collective that Python issues: in ``join()`` DDP sends zeros."""
        ddp = self._ddp()
        if not self._is_without_hook(ddp):
            return None
        if issuer.f_code is _ZEROS and issuer.f_locals["self"] is ddp:
            (tensor,) = args.input_tensors
            slot = self._next()
            if (slot.numel, slot.torch_dtype) == (tensor.numel(), tensor.dtype):
                return slot
        elif args.name == group_hooks.ALL_REDUCE and current_pass() != -1:
            self._notices.untraced += 1  # of a compiled pass, it may be DDP's
        return None

    def _meet(self, tensor: torch.Tensor) -> BucketSlot | None:
        """Return the bucket of an all-reduce whose place is not known, if it is this model's."""
        ddp: Any = self._ddp()
        if ddp is None or tensor.dtype not in self._dtypes or not self._is_of_a_gradient(ddp):
            return None
        begins = not self._slots or self._next() is self._slots[0]
        if begins and not self._is_without_hook(ddp):
            return None
        slot = self._next()
        if (slot.numel, slot.torch_dtype) == (tensor.numel(), tensor.dtype):
            if not self._is_lazy:
                self._by_place[tensor.data_ptr()] = slot
            return slot
        self._notices.untraced += 1
        return None

    def _next(self) -> BucketSlot:
        """Return the bucket that comes next, of those that there are."""
        index = self._slots[0].model.last_index + 1
        return self._slots[index if index < len(self._slots) else 0]

    def _is_of_a_gradient(self, ddp: Any) -> bool:
        """Whether a gradient of this model is what the pass is at; none is at its end.

        There DDP sends all of a static graph's first pass.
        """
        node = current_node() if current_node is not None else None
        if node is None:
            return bool(ddp.static_graph)
        variable = getattr(node, "variable", None)
        known = self._parameters.get(id(variable))
        return known is not None and known() is variable

    def _is_without_hook(self, ddp: Any) -> bool:
        """Leave the model to a hook that has come by other ways than hooktrace's."""
        if ddp is not None and listed_hooks(ddp) and self._parameters:
            logger.warning(
                "a hook was registered on a model that is traced without one, and is not traced; "
                "register it with hooktrace.instrument(ddp, hook, state)"
            )
            self.leave()
        return ddp is not None and bool(self._slots)

    def _see_rebuilt(self, _: torch.Tensor) -> None:
        """Ask the reducer once it has rebuilt its buckets; called with each gradient until then."""
        ddp: Any = self._ddp()
        if ddp is not None and not ddp._has_rebuilt_buckets:
            return
        self._forget_gradients()
        try:
            if ddp is not None and self._slots:
                self._ask(ddp)
        except Exception as error:  # of the reducer
            self.leave()
            self._tracer.push(Loss.of_stamps(error))

    def _forget_gradients(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _ask(self, ddp: Any) -> None:
        """Ask the reducer for its buckets, in the order in which they are sent."""
        self._tracer.start()
        slots: list[BucketSlot] = []
        for model in self._layout.models:
            model.last_index = sys.maxsize
        for bucket in ddp.reducer._get_zeros_like_grad_buckets():
            slots.append(self._layout.identify(bucket)[0])
            slots[-1].model.enter(bucket.index())  # by which the next one is known for its model's
        for model in self._layout.models:
            model.step, model.last_index = model.step - 1, sys.maxsize
        self._by_place.clear()
        self._slots = slots
        for slot in slots:
            slot.collective = Collective(
                "all_reduce", slot.gradient_bytes, slot.torch_dtype, self._info
            )


def listed_hooks(ddp: DistributedDataParallel) -> list[tuple[Callable[..., Any], Any]]:
    """Return torch's own list of a model's hooks and states, for it to be changed in place.

    A copy of a model has its list and none of the hooks.
    """
    return ddp._comm_hooks


def has_buckets(ddp: DistributedDataParallel) -> bool:
    """Return whether hooks of a model get buckets: torch's compiled python reducer has none."""
    return not getattr(ddp, "_use_python_reducer", False)


models: weakref.WeakKeyDictionary[Any, HooklessModel] = weakref.WeakKeyDictionary()
"""By DDP model: what records it."""


def can_watch(ddp: DistributedDataParallel, tracer: Tracer) -> bool:
    """Return whether a model can be traced without any hook.

    What is sent of a sparse or a complex gradient is not the bucket that the reducer tells of.
    """
    modules, parameters = ddp.module.modules(), list(ddp.module.parameters())
    return (
        group_hooks.available
        and current_node is not None
        and None not in (engine_code, _ZEROS)
        and not tracer.needs_hook
        and not listed_hooks(ddp)
        and has_buckets(ddp)
        and all(hasattr(ddp, name) for name in ("reducer", "_has_rebuilt_buckets"))
        and hasattr(ddp.reducer, "_get_zeros_like_grad_buckets")
        and all(one.is_cpu and not one.is_complex() for one in parameters)
        and not any(getattr(module, "sparse", False) for module in modules)
    )


def leave(ddp: DistributedDataParallel) -> None:
    """Record nothing more of a model here: a hook takes its buckets."""
    if ddp in models:
        models.pop(ddp).leave()
