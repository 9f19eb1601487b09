"""One bucket of DDP's, and the model that it belongs to, as a hook call finds them.

    GradBucket --layout.py--> BucketSlot: numbers that never change, and the bucket's last call
                                  +-- ModelState: step, rebuild, slots, what is sampled

Parameters are known by ``id``, their names and the buffers by weak reference: nothing here keeps a
tensor alive.  ``FlatBucket`` is all that a hook asks of a bucket: ``torch.distributed.GradBucket``
has no constructor.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from ..records import (
    AssignmentRecord,
    BucketLayout,
    BucketRecord,
    Members,
    Options,
    Parameter,
    Unit,
)
from .backward import graph_task_id
from .devices import has_events

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

    from ..probes.step_sampler import StepSampler
    from .calls import BucketCall, Collective


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


GradBucketLike: TypeAlias = "GradBucket | FlatBucket"
"""What a hook is called for."""


class BucketSlot:
    """One bucket of one rebuild of one model; its numbers never change.

    ``is_last`` is set when the bucket says so, which one of a static graph's first backward pass
    does not do before the second.  ``blank``: what the records of all its calls have in common.
    ``thread``: the one that its first call was on.  ``collective``: all that its calls do, where
    torch itself communicates and no hook does.  ``unit``: of a sharded model, whose ``parameters``
    are names and shapes; of DDP's the bucket has them.
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
        bucket: GradBucketLike,
        index: int,
        ids: tuple[int, ...],
        unit: Unit | None = None,
        *,
        members: Members | None = None,
        parameters: tuple[tuple[str, tuple[int, ...]], ...] | None = None,
    ) -> None:
        buffer = bucket.buffer()
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
        self.parameters = parameters or tuple(
            (model.names.get(parameter, f"{index}.{position}"), tuple(parameter.shape))
            for position, parameter in enumerate(bucket.parameters())
        )
        self.unit = unit
        self.last_call: BucketCall | None = None
        self.collective: Collective | None = None
        self.usual: Any = None
        """What the driver knows of the operation that a staged hook makes of it each time."""
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
    names: Mapping[Any, str]
    rank: int
    first_step: int = 0
    step: int = field(init=False)
    last_index: int = sys.maxsize
    rebuild: int = 0
    slots: dict[int, BucketSlot] = field(default_factory=dict)
    ddp: weakref.ref[torch.nn.Module] | None = None
    """Its DDP model, where somebody has told."""
    is_planned: bool = False
    """Whether it was decided what is sampled."""
    sampling: StepSampler | None = None
    sample_step: int = sys.maxsize
    """The next step at which ``sampling`` has anything to do."""
    ended: tuple[int, int] = field(init=False)
    """Of a sharded model: the last step that has ended, and how many collectives it had."""
    beside: BucketCall | None = None
    """Of a sharded model: a collective that is under way and recorded when it is over."""
    departure: Departure | None = None
    """Of a sharded model: where it last made another collective than the step before had."""

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

    @property
    def position(self) -> tuple[int, int]:
        """The step and the bucket of the last call that was counted.  Any thread may ask.

        Of a sharded model a collective is known by how many of its step began before.
        """
        return self.step, self.last_index

    def awaits(self, index: int) -> bool:
        """Return whether bucket ``index`` is the next one of an unfinished backward pass."""
        return self.last_index == index - 1 and not self.slots[self.last_index].is_last

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
