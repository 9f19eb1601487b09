"""What FSDP calls in the place of its collectives: the same collective, stamped.

    FSDP --__call__(output, input, group)--> call = model.begin(...) --> the inner collective
                                             call.done, exposed  <--+-- its Work, waited for

On gloo every collective is synchronous: training stands still from the call to its end, and all of
that time is exposed.  One that was asked for asynchronously (``unshard(async_op=True)``) exposes
what it takes to issue it, and what its ``wait`` takes.  On a device the collective runs on FSDP's
own stream, and so do the events that are recorded here; where the computing stream waits for it is
seen in ``torch_waits.py``.

ParameterGroup --TracedUnit--> TracedAllGather, TracedReduceScatter, ReplicaReduction --undo--> it

What is recorded changes nothing: buffers come from what FSDP had before (``allocate``).  Gathering
and reducing say the same around ``inner``, since a frame more takes a microsecond of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..records.bucket import UnitCollective
from ..staging.calls import NOT_YET, BucketCall
from ..staging.devices import has_events
from ..staging.driver import run_synchronously
from ..staging.units import ShardedModel, UnitWaits
from ..tracing.tracer import Tracer
from .hooks import GatherHook, Gathering, Reduction, ScatterHook, divisor_of
from .probe import OwnPart, Reference, UnitProbe
from .replicas import ReplicaReduction
from .torch_groups import Comms, ParameterGroup
from .torch_waits import WatchedWaits


class _StandsFor:
    """Is of the class of ``inner``, which it stands for, to all who ask.

    FSDP's setters go by that, and set another collective only in its place; FSDP waits for nothing
    that is no work.
    """

    inner: Any = None  # of one that is half made, as by ``copy``, too

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.inner)


class _TracedCollective(_StandsFor):
    """Stands for one of FSDP's collectives while it is recorded."""

    def __init__(self, inner: Any, unit: TracedUnit, collective: UnitCollective) -> None:
        self.inner = inner
        # Bound once: FSDP calls the first without a frame of ours, and we the second so that
        # its keywords become no dictionary.
        self.allocate: Callable[..., torch.Tensor] = inner.allocate
        self._communicate: Callable[..., Any] = inner.__call__
        self.unit = unit
        self._model = unit.model
        self._clock = unit.tracer.clock
        self._places = unit.model.places_of(unit.group.unit, collective)
        # torch's own, of which it is known what it sends.
        self._is_known = type(inner).__module__.startswith("torch.distributed.")


class TracedAllGather(_TracedCollective):
    """Gathers a unit's parameters with ``inner``, or with a hook, and records that."""

    def __init__(self, inner: Any, unit: TracedUnit, hook: GatherHook | None = None) -> None:
        super().__init__(inner, unit, "all_gather")
        self._hook = hook

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        """Gather the parameters, as FSDP asks for it."""
        if self._hook is not None and input_tensor.is_floating_point():
            return self._gather_by(self._hook, output_tensor, input_tensor, group)
        is_known = self._is_known
        # By position: CPython 3.11 calls a function with keywords the slow way.
        call = self._model.begin(self._places, input_tensor, group, None, is_known)
        if call is not None and not is_known:
            call.staged = False
        try:
            communicate = self._communicate
            work = communicate(
                output_tensor=output_tensor,
                input_tensor=input_tensor,
                group=group,
                async_op=async_op,
            )
        except BaseException as error:
            self._model.fail(call, "wire" if is_known else "hook", error)
            raise
        if call is None:
            return work
        # FSDP waits for nothing else; without a work there is none to ask for its class.
        if work is not None and isinstance(work, dist.distributed_c10d.Work):
            return TracedWork(work, call, self.unit)
        if call.on_device:
            call.over()
            return work
        try:
            clock = self._clock
            call.done = clock()  # as ``over`` does
        except Exception as error:
            call.lose_end(error)
        return work

    def _gather_by(
        self, hook: GatherHook, whole: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup
    ) -> None:
        call = self._model.begin(self._places, own, group)
        asked = Gathering(own, whole, group, self.unit.group.unit.name)
        probe = self.unit.probe
        look = None if probe is None else probe.of_gather(call, asked)
        self.unit.run(hook, asked, whole, call, look)


class TracedReduceScatter(_TracedCollective):
    """Reduces and scatters a unit's gradients with ``inner``, or with a hook, and records that.

    ``over``: of replicas, called with the device when the collective is over, if there is one.
    """

    def __init__(
        self,
        inner: Any,
        unit: TracedUnit,
        over: Callable[[torch.device], None] | None = None,
        hook: ScatterHook | None = None,
    ) -> None:
        super().__init__(inner, unit, "reduce_scatter")
        self.hook = hook
        self._memory: dict[int, torch.Tensor] = {}
        self._reduced: tuple[str, ...] | None = None
        self._over = over
        if over is not None and unit.group.ranks == 1:
            self.allocate = self._allocate

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        """Reduce and scatter the gradients, as FSDP asks for it."""
        if self.hook is not None:
            return self._reduce_by(self.hook, output_tensor, input_tensor, group, op)
        is_known = self._is_known
        # By position: CPython 3.11 calls a function with keywords the slow way.
        call = self._model.begin(self._places, input_tensor, group, None, is_known)
        if call is not None and not is_known:
            call.staged = False
        try:
            communicate = self._communicate
            if async_op:
                communicate = partial(communicate, async_op=True)
            # Without ``async_op``: FSDP itself does not pass it.
            work = communicate(
                output_tensor=output_tensor, input_tensor=input_tensor, group=group, op=op
            )
        except BaseException as error:
            self._model.fail(call, "wire" if is_known else "hook", error)
            raise
        if call is not None and call.on_device:
            call.over()
        elif call is not None:
            try:
                clock = self._clock
                call.done = clock()  # as ``over`` does
            except Exception as error:
                call.lose_end(error)
        if self._over is not None:
            self._over(output_tensor.device)
        return work

    def _reduce_by(
        self,
        hook: ScatterHook,
        part: torch.Tensor,
        gradients: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
    ) -> None:
        call = self._model.begin(self._places, gradients, group)
        divisor = divisor_of(op, group.size())
        reduced = self.unit.group.all_trained(gradients.numel())
        if reduced is None or reduced != self._reduced:
            self._memory.clear()  # what others have lost, or the same ones elsewhere, is not theirs
        self._reduced = reduced
        asked = Reduction(gradients, part, group, divisor, self.unit.group.unit.name, self._memory)
        probe = self.unit.probe
        look = None if probe is None else probe.of_scatter(hook, call, asked, op)
        self.unit.run(hook, asked, part, call, look)
        if self._over is not None:
            self._over(part.device)

    def _allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return what ``inner`` allocates; over one rank nothing is scattered after that."""
        assert self._over is not None
        self._over(device)
        return self.inner.allocate(size, dtype=dtype, device=device)  # type: ignore[no-any-return]


class TracedWork(_StandsFor):
    """A collective under way: whoever waits for it exposes what is left."""

    def __init__(self, work: Any, call: BucketCall, unit: TracedUnit) -> None:
        self.inner = work
        self._call = call
        self._model = unit.model
        self._clock = unit.tracer.clock
        call.launched = now = self._now()
        if call.events is None:
            call.exposed = None if now is None else now - call.ready
            # Its end may come long before anybody waits for it.
            work.get_future().add_done_callback(self._arrived)

    def _now(self) -> int | None:
        try:
            return self._clock()
        except Exception as error:  # of a clock: what is waited for here is not known
            self._call.lose_stamps(error)
            return None

    def _arrived(self, _: Any) -> None:
        if self._call.done == NOT_YET:
            self._call.arrived()
            self._call.finished()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait, and take the time."""
        call, began = self._call, self._now()
        try:
            done = self.inner.wait() if timeout is None else self.inner.wait(timeout)
        except BaseException as error:
            self._model.fail(call, "wire", error)
            raise
        self._arrived(None)
        over = self._now()
        known = call.exposed is not None and began is not None and over is not None
        call.exposed = call.exposed + over - began if known else None  # type: ignore[operator]
        return bool(done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Hooks(NamedTuple):
    """What takes the place of FSDP's own collectives; ``None``: nothing."""

    reduce_scatter: ScatterHook | None
    all_gather: GatherHook | None

    @property
    def name(self) -> str:
        """What records call them; without any, torch's own collectives."""
        return ", ".join(hook.name for hook in self if hook is not None) or "fully_shard"


class TracedUnit:
    """A parameter group and what it communicates with while it is traced.

    ``scatter``: its reduce-scatter, whose hook may change between steps.  ``probe``: of its hooks,
    on sampled steps.  ``end``: ends the tracing of the whole model.
    """

    def __init__(
        self,
        group: ParameterGroup,
        model: ShardedModel,
        tracer: Tracer,
        hooks: Hooks,
        *,
        waits: UnitWaits | None,
        probe: UnitProbe | None,
        end: Callable[[], None],
    ) -> None:
        self.group, self.probe, self.end = group, probe, end
        self.model, self.tracer = model, tracer
        self._before = gather, scatter, theirs = group.comms
        reduction, over = None, None
        if group.replicas is not None or theirs is not None:
            reduction = ReplicaReduction(theirs, group, model, tracer, end)
            over = None if group.replicas is None else reduction.begins
        self.scatter = TracedReduceScatter(scatter, self, over, hooks.reduce_scatter)
        gather = TracedAllGather(gather, self, hooks.all_gather)
        self.ours = group.comms = Comms(gather, self.scatter, reduction)
        self._watch = None
        if waits is not None and has_events(group.of_torch.device):
            self._watch = WatchedWaits(group, waits)

    def run(
        self,
        hook: ScatterHook | GatherHook,
        asked: Reduction | Gathering,
        into: torch.Tensor,
        call: BucketCall | None,
        look: Reference | OwnPart | None,
    ) -> None:
        """Run a hook, stamped on ``call``, and ``look`` at its result.  Raises ``HookError``."""
        try:
            steps = hook.steps(asked)  # type: ignore[arg-type]  # each is asked what it is for
            result = run_synchronously(hook.name, steps, hook, asked, call, into.numel())
        except BaseException:
            if look is not None:
                look.abandon()
            self.model.leave()
            raise
        if result is not into:
            into.copy_(result)
        if call is None:
            return
        call.finished()
        call.launched = call.done
        if call.events is None:
            call.exposed = call.done - call.ready
        if look is not None:
            try:
                look.compare(into)
            finally:
                call.release()
                if call.events is None and call.released is not None:
                    call.exposed = call.released - call.ready

    def undo(self) -> None:
        """Give the group back what it had, but for what somebody else has set since."""
        if self._watch is not None:
            self._watch.undo()
        now = zip(self.group.comms, self.ours, self._before, strict=True)
        self.group.comms = Comms(*(before if one is ours else one for one, ours, before in now))


def untrace(group: ParameterGroup) -> None:
    """End the tracing that a group is in, that of its whole model."""
    for one in group.comms:
        if isinstance(one, TracedAllGather | TracedReduceScatter):
            one.unit.end()
        elif isinstance(one, ReplicaReduction):
            one.end()
