"""One call of a hook for a DDP bucket: the driver and the record of its stamps, in one object.

    StagedHook.launch --> StagedRun, DeviceStagedRun     its future --then--> finish --> the ring
    launch_opaque     --> OpaqueRun, DeviceOpaqueRun     the hook's future, the same;
                                         its collectives by ``group_hooks.py``, where torch tells

Each object and each function call costs a microsecond or two here.  So the usual call, of one
collective, is written out in one function for the training thread (``StagedHook.launch``) and one
for the callback; several rounds take the driver's steps one by one.  A run without a recorder
belongs to an untraced hook and has no stamps.  A run that has ended holds no tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from . import group_hooks, streams
from .calls import NOT_YET, BucketCall, Collective, Round, one_after_another
from .devices import DeviceCall
from .driver import HELD, NO_SLOTS, Future, HookRun, raise_for, second_collective, stages_of
from .hook_checks import no_future, wrong_result
from .operations import Operation

if TYPE_CHECKING:
    from .group_hooks import SeenCollective

# Those of torch.futures.Future are functions of Python's, which call these.
_then: Callable[[Future, Callable[[Future], torch.Tensor]], Future] = torch._C.Future.then
_done: Callable[[Future], bool] = torch._C.Future.done
_value: Callable[[Future], Any] = torch._C.Future.value


class _Driven(HookRun):
    """A run that is the very call it is stamped on; ``recorder``: ``None`` of an untraced hook."""

    __slots__ = NO_SLOTS

    slot: Any
    recorder: Any

    @property
    def call(self) -> BucketCall | None:
        """The run itself."""
        return None if self.recorder is None else self  # type: ignore[return-value]  # it is one

    def end(self, result: Any) -> torch.Tensor:
        """Return the result, checked, and push the call."""
        traced = self.recorder is not None
        wrong = wrong_result(result, self.slot if traced else None)
        if wrong is not None:
            self.fail(self.own_stage, wrong)
        self.let_go_of_hook()
        if traced:
            self.finished()  # type: ignore[attr-defined]  # of BucketCall
        return result  # type: ignore[no-any-return]  # it was checked

    def fail(self, stage: str, error: BaseException) -> NoReturn:
        """Put a failure on the record, let go of the hook, and raise the error that names it."""
        name, bucket = self.name, self.bucket
        self.let_go_of_hook()
        raise_for(name, bucket, stage, error, self.call)

    def let_go_of_hook(self) -> None:
        """Hold nothing of the hook's any more: the call stays until the drain has read it."""
        self.generator = self.state = self.bucket = self.yielded = None


class StagedRun(_Driven, BucketCall):
    """A call of a staged hook: its driver, and its stamps."""

    __slots__ = HELD

    @classmethod
    def untraced(cls) -> StagedRun:
        """Return a run that is not stamped."""
        run = cls.__new__(cls)
        run.recorder = None
        return run

    def finish(  # noqa: PLR0912, PLR0915  # see above
        self, arrived: Future
    ) -> torch.Tensor:
        """Return the result of a hook whose one operation has arrived: the callback for ``then``.

        It is ``arrive``, ``advance`` and ``end`` in one.  What it raises makes DDP's backward pass
        fail.
        """
        operation: Any = self.yielded
        recorder = self.recorder
        if recorder is not None:
            clock, slot = recorder.clock, self.slot
            buffer_of = slot.buffer
            buffer = buffer_of()
            if self.operation is not None:
                if self.on_device:
                    self.record()
                try:
                    self.arrived_at = clock()
                    self.operation = None
                    usual = slot.usual
                    if (
                        usual is not None
                        and type(operation) is usual.kind
                        and operation.tensor is buffer
                        and operation.group is usual.group()
                    ):
                        self.collective = usual.collective
                    else:
                        self._describe(operation, buffer)
                except Exception as error:
                    self.lose_stamps(error)
        try:
            value = operation.result(arrived)
        except BaseException as error:
            self.fail(stages_of(operation).waiting, error)
        generator: Any = self.generator
        if streams.enabled:
            streams.keep_across_yield(generator, self.state, operation, self.bucket, value)
        try:
            generator.send(value)
        except StopIteration as stop:
            result = stop.value
        except BaseException as error:
            self.fail(stages_of(operation).after, error)
        else:
            self.fail(stages_of(operation).after, second_collective())
        if recorder is None:
            if not isinstance(result, torch.Tensor):
                self.end(result)
            return result  # type: ignore[no-any-return]  # checked
        # Most hooks give the bucket's own tensor back.
        if result is not buffer or result is None or result.numel() != slot.numel:
            wrong = wrong_result(result, slot)
            if wrong is not None:
                self.fail(stages_of(operation).after, wrong)
        self.generator = self.state = self.bucket = self.yielded = None
        if self.on_device:
            self.record()
        try:
            self.done = clock()
        except Exception as error:
            self.lose_stamps(error)
        recorder.push(self)
        return result  # type: ignore[no-any-return]  # checked

    def _describe(self, operation: Operation, buffer: torch.Tensor | None) -> None:
        """Ask an operation that is not the slot's usual one what it is."""
        known = operation.describe()
        if known is None:
            self.see_from_outside()
            return
        self.collective = known
        kind = type(operation)
        if kind.describe is Operation.describe and operation.tensor is buffer:
            self.slot.usual = Usual(kind, weakref.ref(operation.group), known)


class Usual(NamedTuple):
    """An operation on the bucket's own tensor, and what it says of itself each time."""

    kind: type
    group: weakref.ref[Any]
    collective: Collective


class OpaqueRun(_Driven, BucketCall):
    """A call of an opaque hook, with no code of its own around it: its stamps, and its end.

    ``seen``: the collectives that it has issued so far; empty where torch tells of none
    (``group_hooks.py``).  ``in_doubt``: why these may not be all.  ``is_watched``: whether torch
    was asked to tell.
    """

    __slots__ = HELD

    seen: Sequence[SeenCollective] = ()
    in_doubt = ""
    is_watched = False

    @property
    def staged(self) -> bool:  # type: ignore[override]  # of others it is known before
        """Whether its collectives are seen, and when they began and ended."""
        seen = self.seen
        return bool(seen) and not self.in_doubt and all(one.has_end for one in seen)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Its collectives that have arrived, and when it has ended, all of them."""
        done = self.done
        arrived = [
            Round(one.collective, one.issued_ns, one.arrived_ns)
            for one in self.seen
            if done != NOT_YET or one.arrived_ns is not None
        ]
        return one_after_another(arrived, done)

    def see_from_outside(self) -> None:
        """Take it that its collectives are not known."""
        self.operation = None
        self.in_doubt = "a stamp failed"

    def let_go_of_hook(self) -> None:
        """Hold nothing of the hook's any more."""
        super().let_go_of_hook()
        if group_hooks.watched:
            group_hooks.over(self)

    def finish(self, arrived: Future) -> torch.Tensor:
        """Return the hook's result: the callback for ``then``."""
        try:
            result = _value(arrived)
        except BaseException as error:
            self.fail("pending", error)
        slot = self.slot
        if result is not slot.buffer() or result is None or result.numel() != slot.numel:
            wrong = wrong_result(result, slot)
            if wrong is not None:
                self.fail("pending", wrong)
        self.bucket = None
        if group_hooks.watched:
            group_hooks.over(self)
        self.finished()
        return result  # type: ignore[no-any-return]  # checked


class DeviceStagedRun(StagedRun, DeviceCall):
    """A call of a staged hook for a bucket on a device."""

    __slots__ = ()


class DeviceOpaqueRun(OpaqueRun, DeviceCall):
    """A call of an opaque hook for a bucket on a device, where what is seen has no times."""

    __slots__ = ()

    staged = False


def launch_opaque(
    name: str, hook: Callable[..., Future], state: Any, bucket: Any, run: OpaqueRun
) -> Future:
    """Run a hook that returns a future; returns one for DDP.

    Raises ``HookError`` where the call itself fails, or returns no future.
    """
    run.name = name
    run.bucket = bucket
    run.generator = run.state = run.yielded = None
    is_watched = bool(group_hooks.watched)
    if is_watched:
        group_hooks.begin(run)
    try:
        try:
            future = hook(state, bucket)
        finally:
            if is_watched:
                group_hooks.returned()
        if not isinstance(future, torch._C.Future):
            raise no_future(future)
    except BaseException as error:
        run.fail("hook", error)
    if _done(future) and not run.on_device:
        # A `then` would cost three microseconds, and say the same; it says what is wrong, too.
        try:
            result = _value(future)
            slot = run.slot
            good = (
                result is slot.buffer() and result is not None and result.numel() == slot.numel
            ) or wrong_result(result, slot) is None
        except Exception:
            good = False
        if good:
            run.bucket = None
            if is_watched:
                group_hooks.over(run)
            recorder = run.recorder
            try:
                clock = recorder.clock
                run.done = clock()
            except Exception as error:
                run.lose_stamps(error)
            recorder.push(run)
            return future
    return _then(future, run.finish)
