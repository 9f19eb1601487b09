"""Which model, rebuild and bucket a hook call belongs to.

    bucket --buffer--> slot                            fast: every call
           --parameters--> model, rebuild, slot     slow: first calls, rebuilds, join() join_dummy
    state  --options_of--> numbers and words that it was made with, for the layout's record

DDP tells a hook nothing of the model, and rebuilds its buckets after the first backward pass.  A
bucket that is met for the first time is identified by its parameters; from then on its buffer, the
same tensor object in every step until a rebuild, leads to its slot with one dictionary look-up.
Under ``lazy_bucket_allocation`` (torch 2.15) buffers are new in each step, and identified so.
Parameters are known by ``id``, names and buffers by weak reference: nothing here keeps a tensor
alive, and a buffer that is gone is not taken for a new one in its place.

With ``static_graph=True`` DDP calls the hooks of the first backward pass at its end, outside any
node of the graph.  Each bucket then has index 0 and, where there are several (parameters of several
dtypes or devices, sparse gradients), none is the last.  They come in their order, and from the
second pass on they tell.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..records import Options
from .backward import current_pass
from .job import current_rank
from .slots import BucketSlot, GradBucketLike, ModelState, in_backward

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

current_node: Callable[[], Any] | None = getattr(torch._C, "_current_autograd_node", None)
"""Returns the node of the graph that runs on this thread; ``None``: torch does not tell."""


def is_unnumbered(bucket: GradBucketLike) -> bool:
    """Whether a bucket's index is not its own; never where torch does not tell."""
    if bucket.index() > 0 or bucket.is_last() or current_node is None:
        return False
    return current_pass() != -1 and current_node() is None


def kind_of(bucket: GradBucketLike) -> tuple[torch.dtype, torch.device] | None:
    """Return what no two buckets of a model have in common in that pass; ``None`` if sparse."""
    buffer = bucket.buffer()
    return (buffer.dtype, buffer.device) if buffer.layout is torch.strided else None


_MOST = 32
_LONGEST = 200


def options_of(state: Any) -> Options:
    """Return those of its class's arguments that a state has as plain values; never raises.

    ``(("matrix_approximation_rank", 2), ...)``: not tensors, groups, or what it counts.  A state
    that is a number or a word itself is ``(("state", ...),)``.
    """
    if _is_plain(state):
        return (("state", state),)
    try:
        names = list(inspect.signature(type(state)).parameters)[:_MOST]
        own = {name: getattr(state, name) for name in names if _is_own(state, name)}
    except Exception:  # a class in C tells no arguments; a property may raise anything
        return ()
    return tuple((name, value) for name, value in own.items() if _is_plain(value))


def _is_own(state: Any, name: str) -> bool:
    """Return whether it is the state's own; of a class it is a default, which may not be meant."""
    return name in getattr(state, "__dict__", ()) or inspect.isdatadescriptor(
        getattr(type(state), name, None)
    )


def _is_plain(value: Any) -> bool:
    kind = type(value)  # a number of another library's is none that a file has
    if kind is float:
        return math.isfinite(value)
    if kind is str:
        return len(value) <= _LONGEST
    return kind is bool or (kind is int and abs(value) < 1 << 63)


class LayoutTracker:
    """Finds the slot of a bucket for one traced hook, on any number of models.

    ``name_model`` gives the n-th model (from 0) that this hook meets its name.  ``sink`` gets the
    layout of each rebuild, when its last bucket was seen.
    """

    def __init__(self, hook: str, name_model: Callable[[int], str], sink: Tracer) -> None:
        self.hook = hook
        self._name_model = name_model
        self._sink = sink
        self.by_buffer: dict[int, BucketSlot] = {}
        """By ``id`` of a buffer, which may be gone: the slot's own is the one that counts."""
        self._owners: dict[int, tuple[weakref.ref[torch.Tensor], ModelState]] = {}
        # By weak reference: a later parameter may get the id of one that is gone.
        self._names: MutableMapping[torch.Tensor, str] = WeakIdKeyDictionary()
        self._met = 0
        self.bucket_cap_bytes: int | None = None
        """DDP's, where it is known."""
        self.ddp: weakref.ref[torch.nn.Module] | None = None
        """The DDP model of the first model that the hook serves, where it is known."""
        self._unnumbered: tuple[int, list[object]] = (-1, [])
        """A pass, and the kinds of the unnumbered buckets that one model has had in it so far."""
        self.models: list[ModelState] = []

    def learn_names(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take parameters with their names."""
        for name, parameter in parameters:
            self._names[parameter] = name

    def recheck(self) -> None:
        """Identify each bucket by its parameters once more."""
        self.by_buffer.clear()

    def find(self, bucket: GradBucketLike) -> BucketSlot | None:
        """Return the slot of a known bucket, ``None`` for one that has to be identified."""
        buffer = bucket.buffer()
        slot = self.by_buffer.get(id(buffer))
        return slot if slot is not None and slot.buffer() is buffer else None

    def identify(self, bucket: GradBucketLike, state: object = None) -> tuple[BucketSlot, bool]:
        """Return a bucket's slot, and whether it is a ``join()`` dummy call; ``state``: DDP's."""
        parameters = bucket.parameters()
        ids = tuple(map(id, parameters))
        unnumbered = is_unnumbered(bucket)
        index = self._number(bucket) if unnumbered else bucket.index()
        model = self._model_of(parameters, index)
        # DDP runs the hooks of dummy calls outside any backward pass, on buckets made for it.
        join_dummy = not in_backward(bucket)
        slot = model.slots.get(index)
        if slot is None or slot.parameter_ids != ids:
            if slot is not None:
                self._rebuild(model, index)
            slot = model.slots[index] = BucketSlot(model, bucket, index, ids)
        if bucket.is_last() and not slot.is_last:
            slot.is_last = True
            self._push_layout(model, state)
        if not join_dummy and not unnumbered:  # else it is asked once more which it is
            self._remember(slot, bucket.buffer())
        return slot, join_dummy

    def _number(self, bucket: GradBucketLike) -> int:
        """Return how many buckets of its model came before an unnumbered one in this pass.

        Two models in one pass are told apart by their dtypes, unless they have none in common.
        """
        task, kind = current_pass(), kind_of(bucket)
        before, kinds = self._unnumbered
        if task != before or (kind is not None and kind in kinds):
            kinds = []
            self._unnumbered = task, kinds
        kinds.append(kind)
        return len(kinds) - 1

    def _remember(self, slot: BucketSlot, buffer: torch.Tensor) -> None:
        if self.by_buffer.get(slot.buffer_id) is slot:
            del self.by_buffer[slot.buffer_id]
        slot.buffer, slot.buffer_id = weakref.ref(buffer), id(buffer)
        self.by_buffer[slot.buffer_id] = slot

    def _model_of(self, parameters: list[torch.Tensor], index: int) -> ModelState:
        owner = next((o for p in parameters if (o := self._owner(p)) is not None), None)
        if owner is None and index > 0:
            # Unknown parameters in a later bucket: a model in its first backward pass, which has
            # more than one bucket when DDP looks for unused parameters, or has several dtypes.
            owner = next((m for m in reversed(self.models) if m.awaits(index)), None)
        if owner is None:
            self._forget_the_dead()
            name, first_step = self._name_model(self._met), self._sink.first_step
            owner = ModelState(name, self.hook, self._names, current_rank(), first_step)
            owner.ddp = None if self._met else self.ddp
            self._met += 1
            self.models = [*self.models, owner]
        for parameter in parameters:
            self._owners[id(parameter)] = (weakref.ref(parameter), owner)
        return owner

    def _owner(self, parameter: torch.Tensor) -> ModelState | None:
        known = self._owners.get(id(parameter))
        # The id alone may be that of a parameter which is gone.
        return known[1] if known is not None and known[0]() is parameter else None

    def _forget_the_dead(self) -> None:
        """Let go of models whose parameters are gone; called when a new one is met."""
        self._owners = {k: o for k, o in self._owners.items() if o[0]() is not None}
        alive = {id(model) for _, model in self._owners.values()}
        self.models = [m for m in self.models if id(m) in alive]
        self.by_buffer = {b: s for b, s in self.by_buffer.items() if s.buffer() is not None}

    def _rebuild(self, model: ModelState, index: int) -> None:
        """Begin a rebuild; buckets before this one came out of the rebuild as they were."""
        model.slots = {i: s for i, s in model.slots.items() if i < index}
        model.rebuild += 1
        self.by_buffer = {b: s for b, s in self.by_buffer.items() if s.model is not model}

    def _push_layout(self, model: ModelState, state: object) -> None:
        """Push the layout of a model whose last bucket is there."""
        first_step = model.step + (max(model.slots) <= model.last_index)
        sink, options = self._sink, options_of(state)
        sink.push(model.layout(first_step, sink.clock(), options, self.bucket_cap_bytes))
