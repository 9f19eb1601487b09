"""The one driver: a hook's generator, advanced from operation to operation to its result.

    StagedHook.launch --Operation.start--> future --then--> finish     one collective: the usual way
    take_turns        --advance, issue, arrive, and again-->           several: in turn, see below
    run_answered      --advance, answer, and again-->                  on trial, compiled: no future
    launch_opaque     --the hook's own future--> finish                any other hook

``StagedRun`` and ``OpaqueRun`` are both the driver of one call and what its stamps are written on,
a ``BucketCall``: each object, and each function that is called, costs a microsecond or two, since
DDP's calls come with cold caches.  For that reason the usual way is written out, in one function
for the training thread and one for the callback; the same steps one by one, for all other ways, are
those of ``HookRun``.  A run without a recorder is that of an untraced hook, which is not stamped.

With several rounds DDP gets a future of the run's own, and the calls take turns, which the
sequencer gives.  No callback waits.  Where callbacks run inline (NCCL), all of it happens inside
``launch``.

Stamps do not raise.  What the hook raises is put on the record and leaves as a ``HookError`` that
names it.  A run that has ended holds no tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch

from ..capture.calls import BucketCall, Collective
from ..capture.device_call import DeviceCall
from ..records.errors import HookError
from . import streams
from .operation import FailureStages, Operation
from .result_check import no_future, wrong_result
from .round_groups import round_group
from .sequencer import Sequencer

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter
Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]

# Those of torch.futures.Future are functions of Python's, which call these.
_then: Callable[[Future, Callable[[Future], torch.Tensor]], Future] = torch._C.Future.then
_done: Callable[[Future], bool] = torch._C.Future.done
_value: Callable[[Future], Any] = torch._C.Future.value


class Ended(NamedTuple):
    """What a hook has returned."""

    result: torch.Tensor


HELD = ("bucket", "generator", "name", "state", "yielded")
"""The slots of a run.  Its class has them, and ``HookRun`` none: of two bases one may have some."""

_NONE: tuple[str, ...] = ()


class HookRun:
    """One call of a hook: its generator, and the operation that it has yielded last.

    ``name``: of the hook, for its errors.  ``state``, ``bucket``: what the hook was called with.
    ``call``: what the stamps are written on, ``None`` where nobody wants any.
    """

    __slots__ = _NONE

    name: str
    generator: Steps | None
    state: Any
    bucket: Any
    yielded: Operation | None

    @property
    def call(self) -> BucketCall | None:
        """What the stamps are written on."""
        return None

    def begin(self, name: str, generator: Steps | None, state: Any, bucket: Any) -> None:
        """Take the hook that is to be run."""
        self.name = name
        self.generator = generator
        self.state = state
        self.bucket = bucket
        self.yielded = None

    def advance(self, value: Any) -> Operation | Ended:
        """Hand ``value`` to the hook; returns what it yields next, or ``Ended``.

        Raises ``HookError`` for what the hook raised, and for a wrong result.
        """
        try:
            return self.generator.send(value)  # type: ignore[union-attr]  # it was begun
        except StopIteration as stop:
            return Ended(self.end(stop.value))
        except BaseException as error:
            self.fail(self.own_stage, error)

    def issue(self, operation: Operation) -> Future:
        """Issue an operation; returns its future.  Raises ``HookError`` for what it raised."""
        self.yielded = operation
        call = self.call
        if call is not None:
            call.issued(operation)
        try:
            return operation.start()
        except BaseException as error:
            self.fail(stages_of(operation).issuing, error)

    def arrive(self, arrived: Future) -> Any:
        """Return the result of the operation whose future has completed.

        On a device, what the hook holds is kept for the stream that it goes on with.  Raises
        ``HookError`` for what the backend raised.
        """
        call, operation = self.call, self.yielded
        if call is not None:
            call.arrived()
        try:
            value = operation.result(arrived)  # type: ignore[union-attr]  # it was issued
        except BaseException as error:
            self.fail(stages_of(operation).waiting, error)
        if streams.enabled and self.generator is not None:
            streams.keep_across_yield(self.generator, self.state, operation, self.bucket, value)
        return value

    def end(self, result: Any) -> torch.Tensor:
        """Return what the hook has returned, checked, with the call's last stamp."""
        raise NotImplementedError

    @property
    def own_stage(self) -> str:
        """The stage that the hook's own code is in."""
        return "compress" if self.yielded is None else stages_of(self.yielded).after

    def fail(self, stage: str, error: BaseException) -> NoReturn:
        """Put a failure on the record and raise the error that names it."""
        _fail(self.name, self.bucket, stage, error, self.call)


def _fail(
    name: str, bucket: Any, stage: str, error: BaseException, call: BucketCall | None
) -> NoReturn:
    """Raise a ``HookError``; what is no ``Exception``, as Ctrl-C, is raised as it is."""
    if call is not None:
        call.failed(stage, error)
    if not isinstance(error, Exception):
        raise error
    # The call knows better than a bucket of a static graph's first pass (capture/first_pass.py).
    index = bucket.index() if call is None else call.slot.index
    raise HookError(name, index, stage, f"{type(error).__name__}: {error}") from error


class _Driven(HookRun):
    """A run that is the very call it is stamped on; ``recorder``: ``None`` of an untraced hook."""

    __slots__ = _NONE

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
        _fail(name, bucket, stage, error, self.call)

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

    def finish(self, arrived: Future) -> torch.Tensor:  # noqa: PLR0912  # see above
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
            self.fail(stages_of(operation).after, _second_collective())
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
    """A call of an opaque hook, with no code of its own around it: its stamps, and its end."""

    __slots__ = HELD

    staged = False

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
        self.finished()
        return result  # type: ignore[no-any-return]  # checked


class DeviceStagedRun(_Driven, DeviceCall):
    """A call of a staged hook for a bucket on a device."""

    __slots__ = HELD

    def finish(self, arrived: Future) -> torch.Tensor:
        """Return the hook's result, step by step: each stamp is an event too."""
        step = self.advance(self.arrive(arrived))
        if not isinstance(step, Ended):
            self.fail(self.own_stage, _second_collective())
        return step.result


class DeviceOpaqueRun(OpaqueRun, DeviceCall):
    """A call of an opaque hook for a bucket on a device."""

    __slots__ = ()


def launch_opaque(
    traced: Any, hook: Callable[..., Future], state: Any, bucket: Any, run: OpaqueRun
) -> Future:
    """Run a hook that returns a future; returns one for DDP.

    Raises ``HookError`` where the call itself fails, or returns no future.
    """
    run.name = traced.__qualname__
    run.bucket = bucket
    run.generator = run.state = run.yielded = None
    try:
        future = hook(state, bucket)
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
            recorder = run.recorder
            try:
                clock = recorder.clock
                run.done = clock()
            except Exception as error:
                run.lose_stamps(error)
            recorder.push(run)
            return future
    return _then(future, run.finish)


def take_turns(run: Any, sequencer: Sequencer) -> Future:
    """Run a hook with several rounds when its turn comes; returns the future of its result."""
    return _Turn(run).submit(sequencer)


class _Turn:
    """A call with several rounds, and the future that DDP waits for.

    ``add_done_callback`` only logs what a callback raises, so a failure completes the future, and
    the ``then`` at its end raises it where DDP sees it.
    """

    __slots__ = ("_future", "_run", "_sequencer")

    def __init__(self, run: HookRun) -> None:
        self._run = run

    def submit(self, sequencer: Sequencer) -> Future:
        """Wait for the calls before this one, then run; returns the future at once."""
        # Taken first: the call may have ended, and its bucket be gone, when submit returns.
        bucket = self._run.bucket
        is_last = bucket.is_last()
        self._future = new_future(bucket.buffer())
        self._sequencer = sequencer
        result = self._future.then(_unwrap)
        sequencer.submit(self._begin)
        if is_last:
            sequencer.wait_until_idle()
        return result

    def _begin(self) -> None:
        call = self._run.call
        if call is not None:
            call.begun()
        self._go_on(None)

    def _go_on(self, arrived: Future | None) -> None:
        run = self._run
        try:
            step = run.advance(None if arrived is None else run.arrive(arrived))
            if not isinstance(step, Ended):
                self._only_rounds(step)
                run.issue(step).add_done_callback(self._go_on)
                return
        except BaseException as error:
            if self._future.done():  # a later round, which ran inline, was interrupted
                raise
            self._end(self._future.set_exception, _as_exception(error))
            if not isinstance(error, Exception):
                raise
        else:
            self._end(self._future.set_result, step.result)

    def _only_rounds(self, operation: Operation) -> None:
        """Have an operation issued on a group where only rounds are."""
        group = getattr(operation, "group", None)  # not every operation has one
        if group is not None:
            try:
                operation.group = round_group(group, operation.tensor)
            except BaseException as error:
                self._run.fail("wire", error)

    def _end(self, complete: Callable[[Any], None], value: Any) -> None:
        try:
            complete(value)
        finally:
            self._sequencer.release()


def _as_exception(error: BaseException) -> Exception:
    """Return what a future can hold."""
    if isinstance(error, Exception):
        return error
    return RuntimeError(f"{type(error).__name__} ended the hook")


def _unwrap(future: Future) -> torch.Tensor:
    """Return the value, or raise the exception: DDP would read an exception as the value."""
    return future.value()  # type: ignore[no-any-return]


class _AnsweredRun(HookRun):
    """A call whose operations are not issued: nobody else's errors can be taken for the hook's.

    So they stay as they are.
    """

    __slots__ = HELD

    def end(self, result: Any) -> torch.Tensor:
        """Return the result; raises ``TypeError`` for what is no tensor."""
        wrong = wrong_result(result, None)
        if wrong is not None:
            raise wrong
        return result  # type: ignore[no-any-return]  # checked

    def fail(self, stage: str, error: BaseException) -> NoReturn:
        """Raise the error."""
        raise error


def run_answered(
    name: str, generator: Steps, bucket: Any, answer: Callable[[Operation], Any]
) -> torch.Tensor:
    """Run a hook to its end, with ``answer`` in place of each collective; returns its result.

    Raises what the hook or ``answer`` raised, and ``TypeError`` for a result that is no tensor.
    """
    run = _AnsweredRun()
    run.begin(name, generator, None, bucket)
    step = run.advance(None)
    while not isinstance(step, Ended):
        step = run.advance(answer(step))
    return step.result


def completed(result: torch.Tensor) -> Future:
    """Return a future that is complete."""
    future = new_future(result)
    future.set_result(result)
    return future


def new_future(tensor: torch.Tensor) -> Future:
    """Return a future that keeps its callbacks on the stream of the tensor's device."""
    device = tensor.device
    return torch.futures.Future(devices=None if device.type == "cpu" else [device])


def stages_of(operation: object) -> FailureStages:
    """Return the stages that a hook may fail in around an operation."""
    return getattr(operation, "failure_stages", Operation.failure_stages)


def _second_collective() -> RuntimeError:
    return RuntimeError(
        "the hook yielded a second collective, but was declared single-round; "
        "declare it with @staged(multi_round=True)"
    )
