"""What FSDP calls in the place of its collectives: the same collective, stamped.

    FSDP --__call__(output, input, group)--> call = steps.begin(unit, ...) --> the inner collective
                                             call.finished, exposed  <--+-- its Work, waited for

On gloo every collective is synchronous: training stands still from the call to its end, and all of
that time is exposed.  One that was asked for asynchronously (``unshard(async_op=True)``) exposes
what it takes to issue it, and what its ``wait`` takes.  On a device the collective runs on FSDP's
own stream, and so do the events that are recorded here; where the computing stream waits for it is
seen in ``torch_waits.py``.

What is recorded changes nothing: buffers come from what FSDP had before (``allocate``), and what
fails in a stamp is counted, while the collective goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..capture.buckets import BucketSlot
from ..capture.calls import NOT_YET, BucketCall, Collective, StampFailure
from ..capture.device_events import DeviceEvent, has_events
from ..capture.units import Known, ShardedModel, UnitInfo
from ..records.bucket import UnitCollective
from ..staging.groups import group_info
from ..staging.synchronous import run_synchronously
from ..tracing.state import ALARMED, RECORDING
from .hooks import GatherHook, Gathering, Reduction, ScatterHook, divisor_of
from .probe import Look, UnitProbe
from .torch_groups import AllReduceHook, is_own

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer


class Stamps:
    """Begins the calls of one unit; ``probe``: of its hooks, on sampled steps."""

    def __init__(
        self,
        model: ShardedModel,
        unit: UnitInfo,
        tracer: Tracer,
        probe: UnitProbe | None = None,
    ) -> None:
        self._model = model
        self.unit = unit
        self._tracer = tracer
        self.probe = probe
        self.clock = tracer.clock
        self.pool = tracer.event_pool

    @property
    def records(self) -> bool:
        """Whether the tracer records."""
        return self._tracer.state is RECORDING

    def begin(
        self,
        collective: UnitCollective,
        payload: torch.Tensor,
        group: dist.ProcessGroup | None,
        ready: int | None = None,
    ) -> BucketCall | None:
        """Return a call that begins now, or began at ``ready``; ``None`` where none is recorded.

        ``group``: ``None`` where nobody knows which one it is in.

        Raises ``AnomalyError`` where one was seen and is to end training.
        """
        tracer = self._tracer
        if tracer.state is ALARMED:
            tracer.raise_alarm()
        try:
            if not tracer.started and tracer.state is RECORDING:
                tracer.start()  # before the stamp: the collective has not begun
            ready = self.clock() if ready is None else ready
            if not self._model.takes(self.unit, collective):
                return None
            if tracer.state is not RECORDING:
                self._model.miss()
                return None
            return self._model.begin(self.unit, payload, ready, group)
        except Exception as error:  # of a clock, a device: this collective goes on untraced
            self._model.miss()
            tracer.push(StampFailure.of(error))
            return None

    def pass_over(self, collective: UnitCollective) -> None:
        """Count a call that is not recorded."""
        if self._model.takes(self.unit, collective):
            self._model.miss()

    def run(
        self,
        hook: ScatterHook | GatherHook,
        asked: Reduction | Gathering,
        into: torch.Tensor,
        call: BucketCall | None,
        look: Look | None,
    ) -> None:
        """Run a hook, stamped on ``call``, and ``look`` at its result.  Raises ``HookError``."""
        try:
            steps = hook.steps(asked)  # type: ignore[arg-type]  # each is asked what it is for
            result = run_synchronously(hook.name, steps, asked, call, into.numel())
        except BaseException:
            if look is not None:
                look.abandon()
            self._model.miss()
            self._model.end_step()
            raise
        if result is not into:
            into.copy_(result)
        self.end(call)
        if look is not None and call is not None:
            try:
                look.compare(into)
            finally:
                call.release()
                if call.events is None and call.released is not None:
                    call.exposed = call.released - call.ready

    def expect(self, slot: BucketSlot, ready: int, group: dist.ProcessGroup) -> None:
        """Have it known that FSDP is in a collective of its own, as in the last one of a slot."""
        call = self._model.expect(slot, ready)
        info = group_info(group, slot.device_type)
        call.issued(Known(Collective("all_reduce", slot.gradient_bytes, slot.torch_dtype, info)))

    @staticmethod
    def end(call: BucketCall | None) -> None:
        """Stamp that a hook's result is where FSDP wants it."""
        if call is not None:
            call.finished()
            call.launched = call.done
            if call.events is None:
                call.exposed = call.done - call.ready

    def leave(self) -> None:
        """End the step under way: the unit is not recorded from here any more."""
        self._model.leave()

    def fail(self, call: BucketCall | None, stage: str, error: BaseException) -> None:
        """Take note that a collective raised: the step ends here, for whatever caught it."""
        if call is not None:
            call.failed(stage, error)
        self._model.miss()
        self._model.end_step()


_MOST_KNOWN = 1024
"""Slots of one unit's collectives of one kind, of which it is kept what they are."""


class Plain:
    """Stamps collectives that torch runs as they are: a call is one of them and nothing else."""

    def __init__(self, kind: UnitCollective) -> None:
        self._kind = kind
        self._known: dict[BucketSlot, tuple[dist.ProcessGroup, Known]] = {}

    def begins(self, call: BucketCall, group: dist.ProcessGroup) -> None:
        """Stamp that the collective begins."""
        slot = call.slot
        of, known = self._known.get(slot) or (None, None)
        if of is not group or known is None:
            if len(self._known) > _MOST_KNOWN:  # of payloads whose size changes in each step
                self._known.clear()
            info = group_info(group, slot.device_type)
            known = Known(Collective(self._kind, slot.gradient_bytes, slot.torch_dtype, info))
            self._known[slot] = group, known
        call.is_only(known)


class TracedAllGather:
    """Gathers a unit's parameters with ``inner``, or with a hook, and records that."""

    def __init__(self, inner: Any, stamps: Stamps, hook: GatherHook | None = None) -> None:
        self.inner = inner
        self._stamps = stamps
        self._hook = hook
        self._is_known = is_own(inner)
        self._plain = Plain("all_gather")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What ``inner`` is: FSDP's setters go by that, and set another one only in its place."""
        return type(self.inner)

    def leave(self) -> None:
        """Take note that the unit is traced from here no more."""
        self._stamps.leave()

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return what ``inner`` allocates."""
        return self.inner.allocate(size, dtype=dtype, device=device)  # type: ignore[no-any-return]

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        """Gather the parameters, as FSDP asks for it."""
        call = self._stamps.begin("all_gather", input_tensor, group)
        if self._hook is not None and input_tensor.is_floating_point():
            asked = Gathering(input_tensor, output_tensor, group, self._stamps.unit.name)
            probe = self._stamps.probe
            look = None if probe is None else probe.of_gather(call, asked)
            self._stamps.run(self._hook, asked, output_tensor, call, look)
            return None
        if call is not None:
            if self._is_known:
                self._plain.begins(call, group)
            else:
                call.staged = False
        try:
            work = self.inner(
                output_tensor=output_tensor,
                input_tensor=input_tensor,
                group=group,
                async_op=async_op,
            )
        except BaseException as error:
            self._stamps.fail(call, "wire" if self._is_known else "hook", error)
            raise
        if call is None:
            return work
        if not isinstance(work, dist.distributed_c10d.Work):  # FSDP waits for nothing else
            call.over()
            return work
        return TracedWork(work, call, self._stamps)


class TracedReduceScatter:
    """Reduces and scatters a unit's gradients with ``inner``, or with a hook, and records that.

    ``over``: of replicas, called with the device when the collective is over, if there is one.
    """

    def __init__(
        self,
        inner: Any,
        stamps: Stamps,
        over: Callable[[torch.device], None] | None = None,
        hook: ScatterHook | None = None,
    ) -> None:
        self.inner = inner
        self._stamps = stamps
        self._hook = hook
        self._is_known = is_own(inner)
        self._plain = Plain("reduce_scatter")
        self._over = over

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What ``inner`` is: FSDP's setters go by that, and set another one only in its place."""
        return type(self.inner)

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return what ``inner`` allocates; over one rank nothing is scattered after that."""
        if self._over is not None:
            self._over(device)
        return self.inner.allocate(size, dtype=dtype, device=device)  # type: ignore[no-any-return]

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        """Reduce and scatter the gradients, as FSDP asks for it."""
        call = self._stamps.begin("reduce_scatter", input_tensor, group)
        if self._hook is not None:
            divisor = divisor_of(op, group.size())
            asked = Reduction(input_tensor, output_tensor, group, divisor, self._stamps.unit.name)
            probe = self._stamps.probe
            look = None if probe is None else probe.of_scatter(self._hook, call, asked, op)
            self._stamps.run(self._hook, asked, output_tensor, call, look)
            if self._over is not None:
                self._over(output_tensor.device)
            return None
        if call is not None:
            if self._is_known:
                self._plain.begins(call, group)
            else:
                call.staged = False
        try:
            work = self.inner(
                output_tensor=output_tensor,
                input_tensor=input_tensor,
                group=group,
                op=op,
                **({"async_op": True} if async_op else {}),  # FSDP itself does not pass it
            )
        except BaseException as error:
            self._stamps.fail(call, "wire" if self._is_known else "hook", error)
            raise
        if call is not None:
            call.over()
        if self._over is not None:
            self._over(output_tensor.device)
        return work


class ReplicaReduction:
    """What is called with a unit's reduced gradients: tells of FSDP's own all-reduce over replicas.

    ``theirs``: the hook that was there before, which is recorded as one call, whatever it does.
    ``group``: of the replicas; ``None``: there are none.  FSDP runs that all-reduce itself, and it
    is seen from both of its sides: it begins when the unit's reduce-scatter is over, and has ended
    when FSDP calls the hook that this is; what is between them is at most a few additions more.
    Over one rank there is no reduce-scatter: it then begins where FSDP has the memory for it, and a
    copy is between them.
    ``is_due``: whether FSDP will reduce now, and call this then.
    """

    def __init__(
        self,
        theirs: AllReduceHook | None,
        stamps: Stamps,
        group: Any,
        is_due: Callable[[Any], bool],
    ) -> None:
        self.theirs = theirs
        self._stamps = stamps
        self._group = group
        self._is_due = is_due
        self._slot: BucketSlot | None = None
        self._began: int | None = None
        self._event: DeviceEvent | None = None
        self._plain = Plain("all_reduce")

    def begins(self, device: torch.device) -> None:
        """Take note that the reduce-scatter is over, on its stream.

        Where gradients are accumulated no all-reduce follows.
        """
        self._began, unused = None, self._event
        self._event = None
        if unused is not None:
            self._stamps.pool.give(device, unused)
        if not self._stamps.records:
            return
        try:
            if has_events(device):
                self._event = self._stamps.pool.record(device)
            self._began = self._stamps.clock()
            if self._slot is not None and self._is_due(self):
                self._stamps.expect(self._slot, self._began, self._group)
        except Exception:  # of a clock, a device: this all-reduce is not recorded
            self._began = None

    def __call__(self, reduced: torch.Tensor) -> None:
        """Record the all-reduce, and call the hook that was there before."""
        if self._group is not None:
            self._record(reduced)
        if self.theirs is not None:
            self._call_theirs(self.theirs, reduced)

    def _record(self, reduced: torch.Tensor) -> None:
        (began, self._began), (event, self._event) = (self._began, None), (self._event, None)
        if began is None:
            self._stamps.pass_over("all_reduce")
            return
        call = self._stamps.begin("all_reduce", reduced, self._group, began)
        if call is not None:
            if event is not None and call.events:
                # This stream has the all-reduce before it: it was not ready just now, but then.
                (now, *_), call.events[0] = call.events, event
                self._stamps.pool.give(reduced.device, now)
            self._plain.begins(call, self._group)
            call.over()
            self._slot = call.slot

    def _call_theirs(self, theirs: AllReduceHook, reduced: torch.Tensor) -> None:
        call = self._stamps.begin("all_reduce", reduced, None)
        if call is not None:
            call.staged = False
        try:
            theirs(reduced)
        except BaseException as error:
            self._stamps.fail(call, "hook", error)
            raise
        if call is not None:
            call.over()


class TracedWork(dist.distributed_c10d.Work):
    """A collective under way: whoever waits for it exposes what is left."""

    def __init__(self, work: Any, call: BucketCall, stamps: Stamps) -> None:
        super().__init__()
        self._work = work
        self._call = call
        self._stamps = stamps
        call.launched = now = self._now()
        if call.events is None:
            call.exposed = None if now is None else now - call.ready
            # Its end may come long before anybody waits for it.
            work.get_future().add_done_callback(self._arrived)

    def _now(self) -> int | None:
        try:
            return self._stamps.clock()
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
            done = self._work.wait() if timeout is None else self._work.wait(timeout)
        except BaseException as error:
            self._stamps.fail(call, "wire", error)
            raise
        self._arrived(None)
        over = self._now()
        known = call.exposed is not None and began is not None and over is not None
        call.exposed = call.exposed + over - began if known else None  # type: ignore[operator]
        return bool(done)

    def is_completed(self) -> bool:
        """Return whether the collective has ended."""
        return bool(self._work.is_completed())

    def is_success(self) -> bool:
        """Return whether it ended well."""
        return bool(self._work.is_success())

    def exception(self) -> Any:
        """Return what it raised."""
        return self._work.exception()

    def result(self) -> Any:
        """Return its tensors."""
        return self._work.result()

    def synchronize(self) -> None:
        """Have the current stream wait for it."""
        self._work.synchronize()

    def get_future(self) -> Any:
        """Return its future."""
        return self._work.get_future()
