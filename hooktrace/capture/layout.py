"""Which model, generation and bucket a hook call belongs to.

DDP tells a hook nothing of the model, and rebuilds its buckets after the first backward pass.  A
bucket that is met for the first time is identified by its parameters; from then on its buffer, the
same tensor object in every step until a rebuild, leads to its slot with one dictionary look-up.

    bucket --buffer--> slot                            fast: every call
           --parameters--> model, generation, slot     slow: first calls, rebuilds, join() shadows

Parameters are known by ``id`` only, buffers by weak reference: nothing here keeps a tensor alive,
and a buffer that is gone is not taken for a new one in its place.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from ..records import AnomalyRecord, BucketLayout, LayoutRecord
from .clocks import EVENT_DEVICES

__all__ = [
    "BucketSlot",
    "GradBucketLike",
    "LayoutTracker",
    "ModelState",
    "anomaly_of",
    "in_backward",
]

_graph_task_id: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)


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


class Sampler(Protocol):
    """What looks at some of a model's calls."""

    @property
    def next_step(self) -> int:
        """The next step at which there is anything to do."""

    def enter(self, start: Any, sink: Any) -> Any:
        """Look at a bucket of a step at or after ``next_step``."""

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more."""


class BucketSlot:
    """One bucket of one generation of one model; its numbers never change."""

    __slots__ = (
        "buffer",
        "device",
        "device_type",
        "dtype",
        "generation",
        "gradient_bytes",
        "has_events",
        "in_flight",
        "index",
        "is_dense",
        "is_last",
        "model",
        "numel",
        "parameter_ids",
        "parameters",
        "torch_dtype",
    )

    def __init__(self, model: ModelState, bucket: GradBucketLike, ids: tuple[int, ...]) -> None:
        buffer = bucket.buffer()
        self.buffer = weakref.ref(buffer)
        self.model = model
        self.generation = model.generation
        self.index = bucket.index()
        self.is_last = bucket.is_last()
        self.numel = buffer.numel()
        self.gradient_bytes: int = buffer.element_size() * buffer.numel()
        self.torch_dtype = buffer.dtype
        self.is_dense = buffer.layout is torch.strided
        self.dtype = str(buffer.dtype).removeprefix("torch.")
        self.device = buffer.device
        self.device_type = buffer.device.type
        self.has_events = self.device_type in EVENT_DEVICES
        self.parameter_ids = ids
        self.parameters = tuple(
            (model.names.get(key, f"{self.index}.{position}"), tuple(parameter.shape))
            for position, (key, parameter) in enumerate(zip(ids, bucket.parameters(), strict=True))
        )
        self.in_flight: object | None = None
        """The call whose future has not completed."""

    def layout(self) -> BucketLayout:
        """Return the slot as a record."""
        return BucketLayout(
            bucket=self.index,
            dtype=self.dtype,
            device_type=self.device_type,
            numel=self.numel,
            gradient_bytes=self.gradient_bytes,
            parameters=self.parameters,
        )


def anomaly_of(
    slot: BucketSlot,
    kind: str,
    *,
    step: int,
    stage: str,
    time_ns: int,
    message: str,
    parameter: str | None = None,
) -> AnomalyRecord:
    """Return the record of an anomaly of one bucket, with a message that says where it is."""
    return AnomalyRecord(
        kind=kind,
        model=slot.model.name,
        hook=slot.model.hook,
        generation=slot.generation,
        step=step,
        bucket=slot.index,
        stage=stage,
        time_ns=time_ns,
        message=f"hook {slot.model.hook!r}, bucket {slot.index}, step {step}: {message}",
        parameter=parameter,
    )


class ModelState:
    """Where one model stands: its step, its generation and the slots of that generation."""

    __slots__ = (
        "generation",
        "hook",
        "last_index",
        "name",
        "names",
        "sample_step",
        "sampling",
        "slots",
        "step",
    )

    def __init__(self, name: str, hook: str, names: dict[int, str]) -> None:
        self.name = name
        self.hook = hook
        self.names = names
        self.step = -1
        self.last_index = sys.maxsize
        self.generation = 0
        self.slots: dict[int, BucketSlot] = {}
        self.sampling: Sampler | None = None
        self.sample_step = sys.maxsize
        """The next step at which ``sampling`` has anything to do."""

    def enter(self, index: int) -> int:
        """Count the call of bucket ``index`` and return its step.

        Buckets come in ascending order, so an index that does not ascend begins a step.
        """
        if index <= self.last_index:
            self.step += 1
        self.last_index = index
        return self.step

    def in_flight(self) -> Iterable[object]:
        """Yield the calls whose futures have not completed."""
        return [s.in_flight for s in list(self.slots.values()) if s.in_flight is not None]


class LayoutTracker:
    """Finds the slot of a bucket for one traced hook, on any number of models.

    ``name_model`` gives the n-th model (from 0) that this hook meets its name.  ``announce`` is
    called with the layout of each generation, when its last bucket was seen.
    """

    def __init__(
        self,
        hook: str,
        name_model: Callable[[int], str],
        announce: Callable[[LayoutRecord], None],
        clock: Callable[[], int],
    ) -> None:
        self.hook = hook
        self._name_model = name_model
        self._announce = announce
        self._clock = clock
        self._by_buffer: dict[int, BucketSlot] = {}
        self._owners: dict[int, tuple[weakref.ref[torch.Tensor], ModelState]] = {}
        self._names: dict[int, str] = {}
        self._met = 0
        self.models: list[ModelState] = []

    def learn_names(self, names: dict[int, str]) -> None:
        """Take parameter names, by ``id`` of the parameter."""
        self._names.update(names)

    def recheck(self) -> None:
        """Identify each bucket by its parameters once more."""
        self._by_buffer.clear()

    def find(self, bucket: GradBucketLike) -> BucketSlot | None:
        """Return the slot of a known bucket, ``None`` for one that has to be identified."""
        buffer = bucket.buffer()
        slot = self._by_buffer.get(id(buffer))
        return slot if slot is not None and slot.buffer() is buffer else None

    def identify(self, bucket: GradBucketLike) -> tuple[BucketSlot, bool]:
        """Return a bucket's slot, and whether the call is a ``join()`` shadow."""
        parameters = bucket.parameters()
        ids = tuple(map(id, parameters))
        model = self._model_of(parameters, bucket.index())
        # DDP runs the hooks of shadows outside any backward pass, on buckets made for the purpose.
        shadow = not in_backward(bucket)
        slot = model.slots.get(bucket.index())
        if slot is None or slot.parameter_ids != ids:
            slot = self._new_slot(model, bucket, ids, rebuilt=slot is not None)
        if not shadow:
            buffer = bucket.buffer()
            slot.buffer = weakref.ref(buffer)
            self._by_buffer[id(buffer)] = slot
        return slot, shadow

    def _model_of(self, parameters: list[torch.Tensor], index: int) -> ModelState:
        owner = next((o for p in parameters if (o := self._owner(p)) is not None), None)
        if owner is None and index > 0:
            # Unknown parameters in a later bucket: a model in its first backward pass, which has
            # more than one bucket when DDP looks for unused parameters.
            owner = next((m for m in reversed(self.models) if m.last_index == index - 1), None)
        if owner is None:
            self._forget_the_dead()
            owner = ModelState(self._name_model(self._met), self.hook, self._names)
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
        self._by_buffer = {b: s for b, s in self._by_buffer.items() if s.buffer() is not None}

    def _new_slot(
        self, model: ModelState, bucket: GradBucketLike, ids: tuple[int, ...], *, rebuilt: bool
    ) -> BucketSlot:
        index = bucket.index()
        if rebuilt:
            # Buckets before this one came out of the rebuild as they were: they stay.
            model.slots = {i: s for i, s in model.slots.items() if i < index}
            model.generation += 1
            self._by_buffer = {b: s for b, s in self._by_buffer.items() if s.model is not model}
        slot = model.slots[index] = BucketSlot(model, bucket, ids)
        if slot.is_last:
            self._announce(
                LayoutRecord(
                    model=model.name,
                    hook=model.hook,
                    generation=model.generation,
                    step=model.step + (index <= model.last_index),
                    time_ns=self._clock(),
                    buckets=tuple(s.layout() for _, s in sorted(model.slots.items())),
                )
            )
        return slot


def in_backward(bucket: Any) -> bool:
    """Whether a hook is called from a backward pass.

    A bucket that is not torch's own (a fake in a test) counts as one, and so does every bucket
    where torch does not tell.
    """
    if _graph_task_id is None or not isinstance(bucket, torch._C._distributed_c10d.GradBucket):
        return True
    return _graph_task_id() != -1
