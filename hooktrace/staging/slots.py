"""Which model, rebuild and bucket a hook call belongs to.

    bucket --buffer--> BucketSlot                        fast: every call
           --parameters--> ModelState, rebuild, slot  slow: first calls, rebuilds, join() dummies

DDP tells a hook nothing of the model, and rebuilds its buckets after the first backward pass.  A
bucket that is met for the first time is identified by its parameters; from then on its buffer, the
same tensor object in every step until a rebuild, leads to its slot with one dictionary look-up.
(Under ``lazy_bucket_allocation``, torch 2.15, it is a new one in each step.)  Nothing here keeps a
tensor alive, and one that is gone is not taken for a new one in its place.

In the first backward pass of a static graph each bucket has index 0 and, where there are several
(of several dtypes or devices, or sparse), none is the last.  They come in their order.
"""

from __future__ import annotations

import inspect
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..records import AssignmentRecord, BucketLayout, BucketRecord, Parameter
from .backward import current_pass, graph_task_id
from .calls import StepCalls
from .devices import has_events
from .groups import part_of_job
from .job import current_rank

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

    from ..probes.step_sampler import StepSampler
    from ..records import Members, Options, Unit
    from ..testing.fakes import FakeBucket
    from ..tracing.tracer import Tracer
    from .calls import BucketCall, Collective
    from .ring import Ring


GradBucketLike: TypeAlias = "GradBucket | FakeBucket"
"""What a hook is called for; torch's own has no constructor."""


class BucketSlot:
    """One bucket of one rebuild of one model; its numbers never change.

    ``is_last``: set when the bucket says so.  ``blank``: what the records of all its calls have in
    common.  ``thread``: the one that its first call was on.  ``collective``: all that its calls do,
    where torch itself communicates and no hook does.  ``usual``: type and group of the operation
    that a staged hook makes of it each time, and what that is.  ``parameters``: names and shapes.
    ``parameter_ids``: of DDP's, and ``unit``: of a sharded model.
    """

    __slots__ = (
        *("blank", "buffer", "buffer_id", "collective", "device", "device_type", "dtype"),
        *("rebuild", "gradient_bytes", "has_events", "index", "is_dense", "is_last"),
        *("last_call", "model", "numel", "parameter_ids", "parameters", "thread", "torch_dtype"),
        *("unit", "usual"),
    )

    def __init__(
        self,
        model: ModelState,
        buffer: torch.Tensor,
        index: int,
        parameters: tuple[tuple[str, tuple[int, ...]], ...],
        *,
        ids: tuple[int, ...] = (),
        unit: Unit | None = None,
        members: Members | None = None,
    ) -> None:
        self.buffer = weakref.ref(buffer)
        self.buffer_id = id(buffer)
        self.model = model
        self.thread = threading.get_ident()
        self.rebuild = model.rebuild
        self.index = index
        self.is_last = False
        self.numel = buffer.numel()
        self.gradient_bytes: int = buffer.element_size() * buffer.numel()
        self.torch_dtype = buffer.dtype
        self.is_dense = buffer.layout is torch.strided
        self.dtype = str(buffer.dtype).removeprefix("torch.")
        self.device = buffer.device
        self.device_type = buffer.device.type
        self.has_events = has_events(self.device)
        self.parameter_ids = ids
        self.parameters = parameters
        self.unit = unit
        self.last_call: BucketCall | None = None
        self.collective: Collective | None = None
        self.usual: tuple[type, weakref.ref[Any], Collective] | None = None
        self.blank = BucketRecord(
            model=model.name,
            hook=model.hook,
            rebuild=self.rebuild,
            step=0,
            bucket=index,
            is_last=False,
            dtype=self.dtype,
            device_type=self.device_type,
            numel=self.numel,
            gradient_bytes=self.gradient_bytes,
            parameter_count=len(self.parameters),
            ready_ns=0,
            launched_ns=0,
            done_ns=0,
            stages=(),
            unit=unit,
            members=members,
        )

    def layout(self) -> BucketLayout:
        """Return the slot as a record."""
        return BucketLayout(
            bucket=self.index,
            dtype=self.dtype,
            device_type=self.device_type,
            numel=self.numel,
            gradient_bytes=self.gradient_bytes,
            parameters=tuple(Parameter(*one) for one in self.parameters),
            unit=self.unit,
            members=self.blank.members,
        )


class Departure(NamedTuple):
    """As the ``order``-th collective of ``step``, from 0, a rank made ``now``, not ``before``.

    ``before`` is ``None`` where the step before had no more.
    """

    step: int
    order: int
    now: Unit
    before: Unit | None


@dataclass(eq=False, slots=True)
class ModelState:
    """Where one model stands: its step, its rebuild and the slots of that rebuild.

    ``first_step``: the number of its first step here; a resumed job goes on with its own.
    """

    name: str
    hook: str
    rank: int
    first_step: int = 0
    step: int = field(init=False)
    last_index: int = sys.maxsize
    calls: StepCalls = field(default_factory=lambda: StepCalls(-1))  # of DDP's last recorded step
    rebuild: int = 0
    slots: dict[int, BucketSlot] = field(default_factory=dict)
    ddp: weakref.ref[torch.nn.Module] | None = None  # where somebody has told
    is_planned: bool = False  # it was decided what is sampled
    sampling: StepSampler | None = None
    sample_step: int = sys.maxsize  # the next one at which ``sampling`` has anything to do
    all_timed: bool = False  # no step is only looked at when its pass ends (``pass_end.py``)
    # Of a sharded model.
    ended: tuple[int, int] = field(init=False)
    """The last step that has ended, and how many collectives it had."""
    beside: BucketCall | None = None  # is under way, and recorded when it is over
    departure: Departure | None = None  # the first other one of the last step that had any

    def __post_init__(self) -> None:
        self.step = self.first_step - 1
        self.ended = (self.step, 0)

    def enter(self, index: int) -> int:
        """Count the call of bucket ``index`` and return its step.

        Buckets come in ascending order, so an index that does not ascend begins a step.
        """
        if index <= self.last_index:
            self.step += 1
        self.last_index = index
        return self.step

    def begin_step(self, first: BucketCall, ring: Ring) -> None:
        """Begin to keep the calls of a step with the first that is recorded; ``ring``: has them."""
        calls = StepCalls(first.step, max(1, len(self.slots)))
        calls.append(first)
        self.let_go_of_lost(ring, calls)
        ring.push(calls)

    def let_go_of_lost(self, ring: Ring, calls: StepCalls | None = None) -> None:
        """Count the calls of a step that did not fit in the ring, but for the first, which is.

        ``calls``: of the step after it, if one has begun.
        """
        lost, self.calls = self.calls, calls or StepCalls(-1)
        if lost.is_lost:
            ring.drop(len(lost) - 1)
            lost.let_go()

    @property
    def position(self) -> tuple[int, int]:
        """The step and bucket (of a unit: ``order``) of the last counted call, for any thread."""
        return self.step, self.last_index

    def layout(
        self, step: int, time_ns: int, options: Options, bucket_cap_bytes: int | None = None
    ) -> AssignmentRecord:
        """Return the slots of this rebuild as a record; ``step``: the first that has them."""
        return AssignmentRecord(
            model=self.name,
            hook=self.hook,
            rebuild=self.rebuild,
            step=step,
            time_ns=time_ns,
            buckets=tuple(slot.layout() for _, slot in sorted(self.slots.items())),
            hook_options=options,
            bucket_cap_bytes=bucket_cap_bytes,
        )


def in_backward(bucket: Any) -> bool:
    """Whether a hook is called from a backward pass.

    So it is taken to be where torch does not tell, and for a bucket that is not torch's own.
    """
    if graph_task_id is None or not isinstance(bucket, torch._C._distributed_c10d.GradBucket):
        return True
    return graph_task_id() != -1


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


def options_of(state: Any) -> Options:
    """Return those of its class's arguments that a state has as plain values; never raises.

    ``(("matrix_approximation_rank", 2), ...)``: not tensors, groups, or what it counts.  A state
    that is a number or a word itself is ``(("state", ...),)``.
    """
    if _is_plain(state):
        return (("state", state),)
    kind = type(state)
    try:
        # What only the class has is a default, which may not be meant.
        own = getattr(state, "__dict__", ())
        names = list(inspect.signature(kind).parameters)[:32]
        names = [n for n in names if n in own or inspect.isdatadescriptor(getattr(kind, n, None))]
        found = [(name, getattr(state, name)) for name in names]
    except Exception:  # a class in C tells no arguments; a property may raise anything
        return ()
    return tuple((name, value) for name, value in found if _is_plain(value))


def _is_plain(value: Any) -> bool:
    kind = type(value)  # a number of another library's is none that a file has
    if kind is float:
        return math.isfinite(value)
    is_word = kind is str and len(value) <= 200
    return is_word or kind is bool or (kind is int and abs(value) < 1 << 63)


class LayoutTracker:
    """Finds the slot of a bucket for one traced hook, on any number of models.

    ``name``: of the first model; further ones get one like it.  ``sink``: gets the layouts.
    """

    def __init__(self, hook: str, name: str, sink: Tracer) -> None:
        self.hook = hook
        self.name = name
        self._sink = sink
        self.by_buffer: dict[int, BucketSlot] = {}
        """By ``id`` of a buffer, which may be gone: the slot's own is the one that counts."""
        # By weak reference: a later parameter may get the id of one that is gone.
        self._owners: MutableMapping[torch.Tensor, ModelState] = WeakIdKeyDictionary()
        self._names: MutableMapping[torch.Tensor, str] = WeakIdKeyDictionary()
        self.models: list[ModelState] = []
        # Of the first model that the hook serves, where it is known.
        self.bucket_cap_bytes: int | None = None
        self.members: Members | None = None
        self.ddp: weakref.ref[torch.nn.Module] | None = None
        self._unnumbered: tuple[int, list[object]] = (-1, [])
        """A pass, and the kinds of the unnumbered buckets that one model has had in it so far."""

    def learn_names(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take parameters with their names."""
        for name, parameter in parameters:
            self._names[parameter] = name

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
            if slot is not None:  # a rebuild, of which buckets before this one came as they were
                model.slots = {i: s for i, s in model.slots.items() if i < index}
                model.rebuild += 1
                self.by_buffer = {b: s for b, s in self.by_buffer.items() if s.model is not model}
            named = tuple(
                (self._names.get(parameter, f"{index}.{position}"), tuple(parameter.shape))
                for position, parameter in enumerate(parameters)
            )
            members = self.members or part_of_job(state)
            slot = model.slots[index] = BucketSlot(
                model, bucket.buffer(), index, named, ids=ids, members=members
            )
        if bucket.is_last() and not slot.is_last:
            slot.is_last = True
            first = model.step + (max(model.slots) <= model.last_index)
            now, options = self._sink.clock(), options_of(state)
            self._sink.push(model.layout(first, now, options, self.bucket_cap_bytes))
        # Else it is asked once more which it is.  A sparse gradient may outlive its bucket.
        if slot.is_dense and not (join_dummy or unnumbered):
            self._remember(slot, bucket.buffer())
        return slot, join_dummy

    def _number(self, bucket: GradBucketLike) -> int:
        """Return how many buckets of its model came before an unnumbered one in this pass.

        Two models in one pass are told apart by the dtypes that they have in common.
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
        known = map(self._owners.get, parameters)
        owner = next((one for one in known if one is not None), None)
        if owner is None and index > 0:
            # Unknown parameters in a later bucket: a model in its first backward pass, which has
            # more than one bucket when DDP looks for unused parameters, or has several dtypes.
            unfinished = [m for m in self.models if m.last_index == index - 1]
            unfinished = [m for m in unfinished if not m.slots[index - 1].is_last]
            owner = unfinished[-1] if unfinished else None
        if owner is None:
            # Models whose parameters are gone are let go of.
            alive = {id(model) for model in self._owners.values()}
            self.by_buffer = {b: s for b, s in self.by_buffer.items() if s.buffer() is not None}
            name = self._sink.models.name(self.name) if self.models else self.name
            owner = ModelState(name, self.hook, current_rank(), self._sink.first_step)
            owner.ddp = None if self.models else self.ddp
            self.models = [*(m for m in self.models if id(m) in alive), owner]
        for parameter in parameters:
            self._owners[parameter] = owner
        return owner
