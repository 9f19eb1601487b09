"""One bucket of DDP's, and the model that it belongs to, as a hook call finds them.

    GradBucket --layout.py--> BucketSlot: numbers that never change, and the bucket's last call
                                  +-- ModelState: step, generation, slots, what is sampled
    paused call --calls += 1--> PassedCalls --position--> step and bucket of the last of them

Parameters are known by ``id``, their names and the buffers by weak reference: nothing here keeps a
tensor alive.  ``FlatBucket`` is all that a hook asks of a bucket, and ``Payload`` what a slot takes
of a unit's collective: ``torch.distributed.GradBucket`` has no constructor.

Ranks that pause some calls apart must agree on numbers afterwards, so each call counts.  To tell
which bucket it is takes microseconds; but from its third step on a model has the same buckets in
every step, in ascending order, those of shadows under ``join()`` too.  Calls are told apart
where the hook serves several models.  One that it serves first while paused is not told from the
other: its calls count too, on all ranks alike.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from ..records import BucketLayout, BucketRecord, LayoutRecord, Members, Options, Parameter, Unit
from .backward import graph_task_id
from .devices import has_events

if TYPE_CHECKING:
    from ..probes.step_sampler import StepSampler
    from .calls import BucketCall


class PassedCalls:
    """``calls`` after bucket ``bucket`` of step ``step``, of a model of ``buckets`` buckets.

    ``calls`` is written by the thread that calls the hook only, and all else stays as it is, so
    that any thread may ask for the position meanwhile.
    """

    __slots__ = ("_buckets", "_first", "_step", "calls")

    def __init__(self, step: int, bucket: int, buckets: int) -> None:
        self._step = step
        self._first = bucket
        self._buckets = buckets
        self.calls = 0

    @property
    def position(self) -> tuple[int, int]:
        """The step and the bucket of the last call."""
        steps, bucket = divmod(self._first + self.calls, self._buckets)
        return self._step + steps, bucket


class FlatBucket:
    """Parameters of one dtype and device, whose gradients are views of a given flat buffer."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], buffer: torch.Tensor, index: int, is_last: bool
    ) -> None:
        self._parameters = list(parameters)
        self._buffer = buffer
        self._index = index
        self._is_last = is_last

    def index(self) -> int:
        """Return the bucket's index."""
        return self._index

    def is_last(self) -> bool:
        """Return whether this is the last bucket of the backward pass."""
        return self._is_last

    def buffer(self) -> torch.Tensor:
        """Return the flat gradients, shape (numel,)."""
        return self._buffer

    def set_buffer(self, tensor: torch.Tensor) -> None:
        """Replace the flat gradients; as in DDP, only this Python object sees it."""
        self._buffer = tensor

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters."""
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """Return views of the buffer in the parameters' shapes."""
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]


class Shape:
    """Stands for a parameter, which nothing here may hold."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class Payload(NamedTuple):
    """What a sharded model's unit gives to a collective, and the shapes of its parameters."""

    tensor: torch.Tensor
    shapes: Sequence[Shape]

    def buffer(self) -> torch.Tensor:
        """Return the payload, shape (numel,)."""
        return self.tensor

    def parameters(self) -> Sequence[Shape]:
        """Return what has the parameters' shapes."""
        return self.shapes


_STEPS_UNTIL_SETTLED = 2


class GradBucketLike(Protocol):
    """What hooktrace reads of a ``torch.distributed.GradBucket``."""

    def index(self) -> int:
        """Position among the buckets."""

    def buffer(self) -> torch.Tensor:
        """The flat gradients, shape (numel,)."""

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, one a parameter."""

    def parameters(self) -> list[torch.Tensor]:
        """The parameters."""

    def is_last(self) -> bool:
        """Whether this is the last bucket of the backward pass."""


class Flat(Protocol):
    """What a slot takes of a bucket: its buffer, and the parameters that share it."""

    def buffer(self) -> torch.Tensor:
        """The flat numbers, shape (numel,)."""

    def parameters(self) -> Sequence[Any]:
        """The parameters, or what has their shapes."""


class BucketSlot:
    """One bucket of one generation of one model; its numbers never change.

    ``is_last`` is set when the bucket says so, which one of a static graph's first backward pass
    does not do before the second.  ``blank``: what the records of all its calls have in common.
    ``thread``: the one that its first call was on.  ``unit``: of a sharded model.
    """

    __slots__ = (
        "blank",
        "buffer",
        "device",
        "device_type",
        "dtype",
        "generation",
        "gradient_bytes",
        "has_events",
        "index",
        "is_dense",
        "is_last",
        "last_call",
        "model",
        "numel",
        "parameter_ids",
        "parameters",
        "thread",
        "torch_dtype",
        "unit",
        "usual",
    )

    def __init__(
        self,
        model: ModelState,
        bucket: Flat,
        index: int,
        ids: tuple[int, ...],
        unit: Unit | None = None,
        *,
        members: Members | None = None,
    ) -> None:
        buffer = bucket.buffer()
        self.buffer = weakref.ref(buffer)
        self.model = model
        self.thread = threading.get_ident()
        self.generation = model.generation
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
        self.parameters = tuple(
            (model.names.get(parameter, f"{self.index}.{position}"), tuple(parameter.shape))
            for position, parameter in enumerate(bucket.parameters())
        )
        self.unit = unit
        self.last_call: BucketCall | None = None
        self.usual: Any = None
        """What the driver knows of the operation that a staged hook makes of it each time."""
        self.blank = BucketRecord(
            model=model.name,
            hook=model.hook,
            generation=self.generation,
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


class ModelState:
    """Where one model stands: its step, its generation and the slots of that generation.

    ``first_step``: the number of its first step here; a resumed job goes on with its own.
    """

    __slots__ = (
        "beside",
        "ddp",
        "departure",
        "ended",
        "first_step",
        "generation",
        "hook",
        "is_planned",
        "last_index",
        "name",
        "names",
        "passed",
        "rank",
        "sample_step",
        "sampling",
        "slots",
        "step",
    )

    def __init__(
        self,
        name: str,
        hook: str,
        names: Mapping[Any, str],
        rank: int,
        first_step: int = 0,
    ) -> None:
        self.name = name
        self.rank = rank
        self.hook = hook
        self.names = names
        self.first_step = first_step
        self.step = first_step - 1
        self.last_index = sys.maxsize
        self.generation = 0
        self.slots: dict[int, BucketSlot] = {}
        self.ddp: weakref.ref[torch.nn.Module] | None = None
        """Its DDP model, where somebody has told."""
        self.passed: PassedCalls | None = None
        """Calls after those that ``step`` counts, while the tracer is paused."""
        self.is_planned = False
        """Whether it was decided what is sampled."""
        self.sampling: StepSampler | None = None
        self.sample_step = sys.maxsize
        """The next step at which ``sampling`` has anything to do."""
        self.ended = (first_step - 1, 0)
        """Of a sharded model: the last step that has ended, and how many collectives it had."""
        self.beside: BucketCall | None = None
        """Of a sharded model: a collective that is under way and recorded when it is over."""
        self.departure: Departure | None = None
        """Of a sharded model: where it last made another collective than the step before had."""

    def enter(self, index: int) -> int:
        """Count the call of bucket ``index`` and return its step.

        Buckets come in ascending order, so an index that does not ascend begins a step.
        """
        if index <= self.last_index:
            self.step += 1
        self.last_index = index
        return self.step

    @property
    def position(self) -> tuple[int, int]:
        """The step and the bucket of the last call that was counted.  Any thread may ask.

        Of a sharded model a collective is known by how many of its step began before.
        """
        passed = self.passed
        return (self.step, self.last_index) if passed is None else passed.position

    @property
    def is_settled(self) -> bool:
        """Whether DDP has rebuilt its buckets by now, if it does so."""
        return self.step >= self.first_step + _STEPS_UNTIL_SETTLED

    def pass_calls(self) -> PassedCalls | None:
        """Return what counts calls from here on, ``None`` where steps may have other buckets yet.

        DDP rebuilds its buckets after the first step.
        """
        last = self.slots.get(len(self.slots) - 1)
        if not self.is_settled or last is None or not last.is_last:
            return None
        self.passed = PassedCalls(self.step, self.last_index, len(self.slots))
        return self.passed

    def settle(self) -> None:
        """Take the calls that were passed into the count."""
        self.step, self.last_index = self.position
        self.passed = None

    def awaits(self, index: int) -> bool:
        """Return whether bucket ``index`` is the next one of an unfinished backward pass."""
        return self.last_index == index - 1 and not self.slots[self.last_index].is_last

    def layout(
        self, step: int, time_ns: int, options: Options, bucket_cap_bytes: int | None = None
    ) -> LayoutRecord:
        """Return the slots of this generation as a record; ``step``: the first that has them."""
        return LayoutRecord(
            model=self.name,
            hook=self.hook,
            generation=self.generation,
            step=step,
            time_ns=time_ns,
            buckets=tuple(slot.layout() for _, slot in sorted(self.slots.items())),
            hook_options=options,
            bucket_cap_bytes=bucket_cap_bytes,
        )

    def in_flight(self) -> int:
        """Return how many calls have not come to an end; of each bucket there is at most one."""
        calls = [slot.last_call for slot in list(self.slots.values())]
        return sum(call is not None and call.in_flight for call in calls)


def in_backward(bucket: Any) -> bool:
    """Whether a hook is called from a backward pass.

    A bucket that is not torch's own (a fake in a test) counts as one, and so does every bucket
    where torch does not tell.
    """
    if graph_task_id is None or not isinstance(bucket, torch._C._distributed_c10d.GradBucket):
        return True
    return graph_task_id() != -1
