"""What runs a hook: a call that is its own driver, and the loops for hooks that DDP does not call.

    StagedHook.launch --Operation.start--> future --then--> StagedRun.finish   one collective: usual
                      --take_turns, go_on, and again-->   several, in turn (``order.py``)
    launch_plain     --> the hook's own future --then--> PlainRun.finish
                                               --the pass ends (``pass_end.py``)--> the same
    run_synchronously --start, wait, and again-->         FSDP's: nobody gets a future

A run is the very call that its stamps are written on.  Each object and each function call costs a
microsecond or two here, since DDP calls a hook with cold caches.  So the usual call, of one
collective, is written out in one function for the training thread (``StagedHook.launch``) and one
for the callback (``finish``).  The callback runs on the backend's thread, often on another core,
whose caches lack what the training thread has just used.  So the training thread looks at the
collective and at the buffer's size, once the collective is issued; the callback stamps.

A run that has ended holds no tensor.  What the hook raises is put on the record and leaves as a
``HookError``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import torch

from ..records.errors import HookError
from . import devices, group_hooks
from .calls import END_UNKNOWN, NOT_YET, BucketCall, Round, one_after_another
from .collectives import Future, Operation
from .groups import group_of
from .hook_checks import no_future, wrong_result
from .order import Sequencer, round_group, sequencer_of
from .pass_end import AwaitedCall, ends_once, watch_pass

if TYPE_CHECKING:
    from .group_hooks import SeenCollective

Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]

# Those of torch.futures.Future are functions of Python's, which call these.
_then: Callable[[Future, Callable[[Future], torch.Tensor]], Future] = torch._C.Future.then
_done: Callable[[Future], bool] = torch._C.Future.done
_value: Callable[[Future], Any] = torch._C.Future.value


class Ended(NamedTuple):
    """What a hook has returned."""

    result: torch.Tensor


class StagedRun(BucketCall):
    """A call of a staged hook: its driver, and its stamps, unless it has no recorder.

    ``name``: of the hook.  ``state``, ``bucket``: what it was called with.  ``yielded``: the
    operation that its generator has yielded last.  ``own``: the bucket's buffer, if the
    collective is on it and it has the bucket's size.  ``future``: what one with several rounds
    completes at the end of its turn, which ``sequencer`` gave it.
    """

    __slots__ = ("bucket", "generator", "name", "own", "state", "yielded")

    name: str
    state: Any
    bucket: Any
    generator: Any
    yielded: Any
    own: torch.Tensor | None
    clock: Any
    future: Any
    sequencer: Any

    def take_turns(self) -> Future:
        """Run a hook with several rounds when its turn comes; returns the future of its result."""
        try:
            group: object | None = group_of(self.state)
        except (RuntimeError, TypeError):  # it names none
            group = None
        self.sequencer = sequencer = sequencer_of(group)
        # Taken first: the call may have ended, and its bucket be gone, when submit returns.
        is_last = self.bucket.is_last()
        self.future = future = new_future(self.bucket.buffer())
        result = future.then(_value)  # raises an exception, which DDP would read as the value
        sequencer.submit(partial(self.go_on, None))
        if is_last:
            sequencer.wait_until_idle()
        return result

    def go_on(self, arrived: Future | None) -> None:
        """Run a hook with several rounds on; ``arrived``: the future of the one before, if any.

        A failure completes the call's future too, since ``add_done_callback`` only logs what a
        callback raises; the ``then`` at its end raises it where DDP sees it.
        """
        future, sequencer = self.future, self.sequencer
        try:
            step = self._next_round(arrived)
            if not isinstance(step, Ended):
                step.add_done_callback(self.go_on)
                return
        except BaseException as error:
            if future.done():  # a later round, which ran inline, was interrupted
                raise
            if isinstance(error, Exception):
                self._end_turn(sequencer, future.set_exception, error)
                return
            ended = RuntimeError(f"{type(error).__name__} ended the hook")  # a future can hold it
            self._end_turn(sequencer, future.set_exception, ended)
            raise
        self._end_turn(sequencer, future.set_result, step.result)

    def _end_turn(self, sequencer: Sequencer, complete: Callable[[Any], None], value: Any) -> None:
        self.future = self.sequencer = None
        try:
            complete(value)
        finally:
            sequencer.release()

    def _next_round(self, arrived: Future | None) -> Future | Ended:
        """Return the future of the collective that the hook has yielded next, or its end.

        It is issued on a group where only rounds are.  Raises ``HookError`` for what the hook or
        the backend raised, and for a wrong result.
        """
        is_traced = self.clock is not None
        generator, operation = self.generator, self.yielded
        stage, value = "compress", None
        try:
            if arrived is not None:
                stage = "wire"
                if is_traced:
                    self.arrived()
                value = operation.result(arrived)
                if devices.keeps_tensors:
                    devices.keep_across_yield(generator, self.state, operation, self.bucket, value)
                stage = "decompress"
            elif is_traced:
                self.stamp("started")
            operation = generator.send(value)
            stage = "wire"
            group = getattr(operation, "group", None)  # not every operation has one
            if group is not None:
                operation.group = round_group(group, operation.tensor)
            self.yielded = operation
            if is_traced:
                self.issued(operation)
            return operation.start()
        except StopIteration as stop:
            if stage == "wire":  # of an operation's own code: the hook has not ended
                self.fail(stage, stop)
            result = stop.value
        except BaseException as error:
            self.fail(stage, error)
        return Ended(self.end(result))

    def end(self, result: Any) -> torch.Tensor:
        """Return what the hook has returned, checked; the call has ended."""
        wrong = wrong_result(result, self.slot if self.clock is not None else None)
        if wrong is not None:
            self.fail("compress" if self.yielded is None else "decompress", wrong)
        self.generator = self.state = self.bucket = self.yielded = None
        if self.clock is not None:
            self.finished()
        return result  # type: ignore[no-any-return]  # it was checked

    def fail(self, stage: str, error: BaseException) -> NoReturn:
        """Put a failure on the record, let go of the hook, and raise the error that names it."""
        bucket = self.bucket
        self.generator = self.state = self.bucket = self.yielded = self.own = None
        raise_for(self.name, bucket, self if self.clock is not None else None, stage, error)

    def finish(  # noqa: PLR0912  # see above
        self, arrived: Future
    ) -> torch.Tensor:
        """Return the result of a hook whose one operation has arrived: the callback for ``then``.

        ``_next_round`` and ``end`` in one.  What it raises fails the backward pass.
        """
        operation = self.yielded
        clock = self.clock
        if clock is not None:
            if self.on_device:
                self.record()
            waits_for: Any = self.operation
            try:
                self.arrived_at = clock()
                self.operation = None
                if waits_for is operation:
                    self._describe(operation)
                else:  # ``launch`` has put there what it is, or nothing
                    self.collective = waits_for
            except Exception as error:
                self.lose_stamps(error)
        try:
            value = operation.result(arrived)
        except BaseException as error:
            self.fail("wire", error)
        generator = self.generator
        if devices.keeps_tensors:
            devices.keep_across_yield(generator, self.state, operation, self.bucket, value)
        try:
            generator.send(value)
        except StopIteration as stop:
            result = stop.value
        except BaseException as error:
            self.fail("decompress", error)
        else:
            several = RuntimeError(
                "the hook yielded a second collective, but was declared single-round; "
                "declare it with @staged(multi_round=True)"
            )
            self.fail("decompress", several)
        if clock is None:
            if not isinstance(result, torch.Tensor):
                self.end(result)
            return result  # type: ignore[no-any-return]  # checked
        # Most hooks give the bucket's own tensor back.
        if result is not self.own or result is None:
            slot = self.slot
            if result is not slot.buffer() or result is None or result.numel() != slot.numel:
                wrong = wrong_result(result, slot)
                if wrong is not None:
                    self.fail("decompress", wrong)
        self.generator = self.state = self.bucket = self.yielded = self.own = None
        if self.on_device:
            self.record()
        try:
            self.done = clock()
        except Exception as error:
            self.lose_end(error)
        return result  # type: ignore[no-any-return]  # checked

    def _describe(self, operation: Operation) -> None:
        """Ask an operation that has arrived, and is not the slot's usual one, what it is."""
        self.collective = known = operation.describe()
        if known is None:
            self.see_from_outside()
            return
        kind, slot = type(operation), self.slot
        if kind.describe is Operation.describe and operation.tensor is slot.buffer():
            slot.usual = kind, weakref.ref(operation.group), known


class PlainRun(AwaitedCall):
    """A call of a plain hook: its stamps, and its end.

    ``seen``: the collectives that it has issued so far, as torch tells (``group_hooks.py``);
    ``in_doubt``: why these may not be all.  ``is_watched``: whether torch was asked to tell.
    """

    __slots__ = ("name",)

    name: str
    seen: Sequence[SeenCollective] = ()
    in_doubt = ""
    is_watched = False

    def leave_to_pass_end(self) -> bool:
        """Have it looked at when its pass ends; false: a callback is to stamp its end."""
        slot = self.slot
        calls = slot.model.calls
        if slot.is_last or self.held or self.on_device or not calls.untimed:
            return False
        if calls.watched_pass is None:
            try:
                calls.untimed = watch_pass(calls)
            except Exception as error:  # of the engine, which is private
                calls.untimed = False
                self.lose_stamps(error)
        return calls.untimed

    @property
    def staged(self) -> bool:  # type: ignore[override]  # of others it is known before
        """Whether its collectives are seen, and when they began and ended; not on a device."""
        seen = self.seen
        return bool(seen) and not self.in_doubt and all(one.has_end for one in seen)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Its collectives that have arrived, and when it has ended, all of them."""
        done = self.done
        arrived = [one for one in self.seen if done != NOT_YET or one.arrived_ns != NOT_YET]
        return one_after_another(arrived, done)

    def see_from_outside(self) -> None:
        """Take it that its collectives are not known."""
        self.operation = None
        self.in_doubt = "a stamp failed"

    def fail(self, stage: str, error: BaseException) -> NoReturn:
        """Put a failure on the record, and raise the error that names it."""
        if group_hooks.is_watching:
            group_hooks.over(self)
        raise_for(self.name, None, self, stage, error)

    def finish(self, arrived: Future, at: int | None = None) -> torch.Tensor:
        """Return the hook's result, which was there ``at`` or is now: the callback for ``then``."""
        try:
            result = _value(arrived)
        except BaseException as error:
            self.fail("future_wait", error)
        slot = self.slot
        if result is not slot.buffer() or result is None or result.numel() != slot.numel:
            wrong = wrong_result(result, slot)
            if wrong is not None:
                self.fail("future_wait", wrong)
        if group_hooks.is_watching:
            group_hooks.over(self)
        if self.on_device:
            self.record()
        try:
            self.done = self.clock() if at is None else at
        except Exception as error:
            self.lose_end(error)
        return result  # type: ignore[no-any-return]  # checked

    def __call__(self, _future: Any) -> None:
        """Stamp that it has arrived; what is wrong with it is raised where DDP has waited."""
        with suppress(HookError):
            self.end()

    def end(self, at: int | None = None) -> None:
        """Stamp that it has arrived, if it was not timed; raises ``HookError`` as ``finish``."""
        with ends_once:
            awaited, self.awaited = self.awaited, None
            if awaited is not None:
                self.operation = None
                self.finish(awaited, at)

    def pass_ended(self, backward_end: int | None) -> None:
        """As of any call; raises ``HookError`` for a wrong result: DDP has not read it."""
        super().pass_ended(backward_end)
        if self.arrived_by is not None:
            self.end(self.arrived_by)
        if backward_end != END_UNKNOWN:
            self.raise_error()

    def waited_for(self, failed: bool) -> None:
        """As of any call; raises ``HookError`` for a wrong result."""
        super().waited_for(failed)
        if not failed:
            self.raise_error()

    def raise_error(self) -> None:
        """Raise the ``HookError`` for what was found when the hook had returned."""
        if self.error is not None and self.bounded:
            raise HookError(self.name, self.slot.index, self.error_stage, self.error)


def launch_plain(  # noqa: PLR0912  # see above
    name: str, hook: Callable[..., Future], state: Any, bucket: Any, run: PlainRun
) -> Future:
    """Run a hook that returns a future; returns one for DDP.

    Raises ``HookError`` where the call itself fails, or returns no future.
    """
    run.name = name
    is_watched = group_hooks.is_watching
    if is_watched:
        group_hooks.begin(run)
    try:
        try:
            future = hook(state, bucket)
        finally:
            if is_watched:
                group_hooks.returned()
    except BaseException as error:
        run.fail("hook", error)
    try:
        if future is None:  # which torch takes for a future, and crashes
            raise TypeError  # as torch does for anything else
        is_done = _done(future)
    except TypeError:
        run.fail("hook", no_future(future))
    if run.on_device or not is_done:
        if not run.leave_to_pass_end():
            return _then(future, run.finish)
        run.bounded, run.awaited = True, future
        return future
    # As ``finish`` does, without the call, for the bucket's own tensor.
    slot = run.slot
    buffer_of = slot.buffer
    result: Any
    try:
        result = _value(future)
    except Exception:
        result = None  # ``finish`` asks again, and puts on the record what is raised
    except BaseException as error:
        run.fail("future_wait", error)
    if result is buffer_of() and result is not None and result.numel() == slot.numel:
        if is_watched:
            group_hooks.over(run)
        clock = run.clock
        try:
            run.launched = run.done = clock()
        except Exception as error:
            run.lose_end(error)
        return future
    try:
        run.finish(future)
    except HookError as error:  # raised in a callback it fails backward properly
        return _then(future, partial(_raise, error))
    return future  # to call ``finish`` through ``then`` would cost three microseconds


def _raise(error: HookError, _: Future) -> NoReturn:
    raise error


def run_synchronously(  # noqa: PLR0917  # what a run holds
    name: str, generator: Steps, state: Any, place: Any, call: BucketCall | None, expected: int
) -> torch.Tensor:
    """Run a hook to its end and return its result, a tensor of ``expected`` elements.

    For FSDP: the thread (or, on a device, its current stream) waits for each collective.
    ``state``: the generator's first argument.  ``place``: what the hook is called for, as errors
    name it.  ``call``: takes the stamps, but for the last one.  Raises ``HookError`` for what the
    hook or a collective raised.
    """
    stage, value = "compress", None
    try:
        while True:
            operation = generator.send(value)  # type: ignore[arg-type]  # None begins it
            stage = "wire"
            if call is not None:
                call.issued(operation)
            issued = operation.start()
            issued.wait()
            if call is not None:
                call.arrived()
            value = operation.result(issued)
            if devices.keeps_tensors:
                devices.keep_across_yield(generator, state, operation, place, value)
            stage = "decompress"
    except StopIteration as stop:
        if stage == "wire":  # of an operation's own code: the hook has not ended
            raise_for(name, place, call, stage, stop)
        result = stop.value
    except BaseException as error:
        raise_for(name, place, call, stage, error)
    if not isinstance(result, torch.Tensor) or result.numel() != expected:
        got = f"{tuple(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
        wrong = TypeError(f"the hook returned {got}; return a tensor of {expected} elements")
        raise_for(name, place, call, stage, wrong)
    return result


def completed(result: torch.Tensor) -> Future:
    """Return a future that is complete."""
    future = new_future(result)
    future.set_result(result)
    return future


def new_future(tensor: torch.Tensor) -> Future:
    """Return a future that keeps its callbacks on the stream of the tensor's device."""
    device = tensor.device
    return torch.futures.Future(devices=None if device.type == "cpu" else [device])


def raise_for(
    name: str, bucket: Any, call: BucketCall | None, stage: str, error: BaseException
) -> NoReturn:
    """Put a hook's failure on the record, and raise a ``HookError``; Ctrl-C is raised as it is."""
    if call is not None:
        call.failed(stage, error)
    if not isinstance(error, Exception):
        raise error
    # The call knows better than a bucket of a static graph's first pass (``slots.py``).
    index = bucket.index() if call is None or call.slot.unit else call.slot.index
    raise HookError(name, index, stage, f"{type(error).__name__}: {error}") from error
