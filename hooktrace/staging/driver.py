"""The one driver: a hook's generator, advanced from operation to operation to its result.

    launch(...)       DDP's call --> HookRun --advance--> generator --yield--> Operation --issue--+
                                        ^                                                     |
                                        +------ arrive <-- the operation's future <-----------+
    run_answered(...)                   the same, each operation answered at once: no future

Whatever the hook is, it is driven by ``HookRun.advance``: a staged hook, traced or not; an opaque
one, whose only operation is its own call; one that runs on trial, or inside a compiled graph.  What
differs is how a result gets back to it and how the end gets out:

- one round: ``future.then(run.finish)``, which costs what torch's own hooks cost;
- several rounds: a future of the run's own, and the turn that the sequencer gives it.  No callback
  waits.  Where callbacks run inline (NCCL), all of it happens inside ``launch``;
- answered: in a loop.

The module is longer than 300 lines because the loop and the three ways into it are read together.

``call`` takes the stamps of a traced hook and is ``None`` for an untraced one.  Stamps do not
raise.  What the hook raises is put on the record and leaves as a ``HookError`` that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from operator import methodcaller
from typing import Any, Final, NoReturn, TypeAlias

import torch

from ..capture.calls import BucketCall
from ..records.errors import HookError
from . import streams
from .hook_call import WHOLE_HOOK
from .operation import FailureStages, Operation
from .result_check import no_future, wrong_result
from .round_groups import round_group
from .sequencer import Sequencer

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter
Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]

_ENDED: Final = object()
"""What ``advance`` returns when the hook has returned; ``result`` then has what it gave."""


class HookRun:
    """One call of a hook for one bucket: its generator, and the operation that it waits for.

    ``name``: of the hook, for its errors.  ``generator``: ``None`` for an opaque hook, which is one
    operation.  ``state``: what the hook was called with.  ``single``: the hook may use one
    operation only.  ``start``: what is done with an operation; it is started, unless something
    answers it.
    """

    __slots__ = (
        *("_bucket", "_call", "_generator", "_name", "_operation", "_single", "_start", "_state"),
        "result",
    )

    result: torch.Tensor

    def __init__(  # noqa: PLR0917  # keywords cost time here
        self,
        name: str,
        generator: Steps | None,
        state: Any,
        bucket: Any,
        call: BucketCall | None,
        single: bool,
        start: Callable[[Operation], Any] = methodcaller("start"),
    ) -> None:
        self._name = name
        self._generator = generator
        self._state = state
        self._bucket = bucket
        self._call = call
        self._single = single
        self._start = start
        self._operation: Operation | None = None

    def advance(self, value: Any) -> Any:
        """Hand ``value`` to the hook and issue what it yields next; ``_ENDED`` when it returned.

        Raises ``HookError`` for what the hook or its operation raised, and for a wrong result.
        """
        try:
            operation = self._generator.send(value)  # type: ignore[union-attr]  # it has code
        except StopIteration as stop:
            return self._returned(stop.value)
        except BaseException as error:
            self._fail(self._own_stage, error)
        if self._single and self._operation is not None:
            self._fail(self._own_stage, _second_collective())
        return self.issue(operation)

    def issue(self, operation: Operation) -> Any:
        """Issue an operation; returns its future.  Raises ``HookError`` for what it raised."""
        self._operation = operation
        if self._call is not None:
            self._call.issued(operation)
        try:
            return self._start(operation)
        except BaseException as error:
            self._fail(_stages_of(operation).issuing, error)

    def arrive(self, arrived: Future) -> Any:
        """Return the result of the operation whose future has completed.

        On a device, what the hook holds is kept for the stream that it goes on with.  Raises
        ``HookError`` for what the backend raised.
        """
        if self._call is not None:
            self._call.arrived()
        try:
            value = self._operation.result(arrived)  # type: ignore[union-attr]  # it was issued
        except BaseException as error:
            self._fail(_stages_of(self._operation).waiting, error)
        if streams.enabled and self._generator is not None:
            streams.keep_across_yield(
                self._generator, self._state, self._operation, self._bucket, value
            )
        return value

    def finish(self, arrived: Future) -> torch.Tensor:
        """Return the hook's result when its one operation has arrived: the callback for ``then``.

        What it raises makes DDP's backward pass fail.
        """
        value = self.arrive(arrived)
        if self._generator is None:
            self._returned(value)
        else:
            self.advance(value)
        return self.result

    def _returned(self, result: Any) -> Any:
        call = self._call
        slot = None if call is None else call.slot
        if (
            slot is None
            or result is not slot.buffer()  # most hooks give the bucket's own tensor back
            or result is None
            or result.numel() != slot.numel
        ):
            wrong = wrong_result(result, slot)
            if wrong is not None:
                self._fail(self._own_stage, wrong)
        self.result = result
        if call is not None:
            call.finished()
        return _ENDED

    @property
    def _own_stage(self) -> str:
        """The stage that the hook's own code is in."""
        return "compress" if self._operation is None else _stages_of(self._operation).after

    def _fail(self, stage: str, error: BaseException) -> NoReturn:
        fail(self._name, self._bucket, stage, error, self._call)


def fail(
    name: str, bucket: Any, stage: str, error: BaseException, call: BucketCall | None
) -> NoReturn:
    """Put a failure on the record and raise the error that names it.

    What is no ``Exception``, as Ctrl-C, is raised as it is.
    """
    if call is not None:
        call.failed(stage, error)
    if not isinstance(error, Exception):
        raise error
    # The call knows better than a bucket of a static graph's first pass (capture/first_pass.py).
    index = bucket.index() if call is None else call.slot.index
    raise HookError(name, index, stage, f"{type(error).__name__}: {error}") from error


def launch(  # noqa: PLR0917  # keywords cost time here
    name: str,
    generator: Steps,
    state: Any,
    bucket: Any,
    call: BucketCall | None,
    sequencer: Sequencer | None = None,
) -> Future:
    """Run a hook for one bucket; returns the future of its flat result.

    ``sequencer``: the one whose turn a hook with several rounds waits for.  Raises ``HookError``
    where a hook of one round fails before its operation is under way.
    """
    if sequencer is not None:
        return _SequencedRun(name, generator, state, bucket, call, False).submit(sequencer)
    run = HookRun(name, generator, state, bucket, call, True)
    issued = run.advance(None)
    if issued is not _ENDED:
        return issued.then(run.finish)
    future = new_future(run.result)
    future.set_result(run.result)
    return future


def launch_opaque(
    name: str, hook: Callable[..., Future], state: Any, bucket: Any, call: BucketCall
) -> Future:
    """Run a hook that is one operation, its own call, with no code of its own around it.

    Raises ``HookError`` where the call itself fails, or returns no future.
    """
    call.staged = False
    run = HookRun(name, None, state, bucket, call, True)
    run._operation = WHOLE_HOOK
    # Started here and not by ``issue``: each function that is called costs a microsecond or two
    # on the training thread, which comes with cold caches.
    try:
        future = hook(state, bucket)
        if not isinstance(future, torch._C.Future):
            raise no_future(future)
    except BaseException as error:
        run._fail(WHOLE_HOOK.failure_stages.issuing, error)
    return future.then(run.finish)


class _SequencedRun(HookRun):
    """A call with several rounds, and the future that DDP waits for.

    ``add_done_callback`` only logs what a callback raises, so a failure completes the future, and
    the ``then`` at its end raises it where DDP sees it.
    """

    __slots__ = ("_future", "_sequencer")

    def submit(self, sequencer: Sequencer) -> Future:
        """Wait for the calls before this one, then run; returns the future at once."""
        # Taken first: the call may have ended, and its bucket be gone, when submit returns.
        is_last = self._bucket.is_last()
        self._future = new_future(self._bucket.buffer())
        self._sequencer = sequencer
        result = self._future.then(_unwrap)
        sequencer.submit(self._begin)
        if is_last:
            sequencer.wait_until_idle()
        return result

    def issue(self, operation: Operation) -> Any:
        """Issue an operation on a group where only rounds are; returns its future."""
        group = getattr(operation, "group", None)  # not every operation has one
        if group is not None:
            try:
                operation.group = round_group(group, operation.tensor)
            except BaseException as error:
                self._fail("wire", error)
        return super().issue(operation)

    def _begin(self) -> None:
        if self._call is not None:
            self._call.begun()
        self._go_on(None)

    def _go_on(self, arrived: Future | None) -> None:
        try:
            issued = self.advance(None if arrived is None else self.arrive(arrived))
            if issued is not _ENDED:
                issued.add_done_callback(self._go_on)
                return
        except BaseException as error:
            if self._future.done():  # a later round, which ran inline, was interrupted
                raise
            self._end(self._future.set_exception, _as_exception(error))
            if not isinstance(error, Exception):
                raise
        else:
            self._end(self._future.set_result, self.result)

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
    """A call whose operations are not issued: ``answer`` gives what each would have brought.

    Nobody else's errors can be taken for the hook's here, so they stay as they are.
    """

    __slots__ = ()

    def _returned(self, result: Any) -> Any:
        wrong = wrong_result(result, None)
        if wrong is not None:
            raise wrong
        self.result = result
        return _ENDED

    def _fail(self, stage: str, error: BaseException) -> NoReturn:
        raise error


def run_answered(
    name: str, generator: Steps, bucket: Any, answer: Callable[[Operation], Any]
) -> torch.Tensor:
    """Run a hook to its end, with ``answer`` in place of each collective; returns its result.

    Raises what the hook or ``answer`` raised, and ``TypeError`` for a result that is no tensor.
    """
    run = _AnsweredRun(name, generator, None, bucket, None, False, answer)
    value: Any = None
    while (value := run.advance(value)) is not _ENDED:
        pass
    return run.result


def new_future(tensor: torch.Tensor) -> Future:
    """Return a future that keeps its callbacks on the stream of the tensor's device."""
    device = tensor.device
    return torch.futures.Future(devices=None if device.type == "cpu" else [device])


def _stages_of(operation: object) -> FailureStages:
    return getattr(operation, "failure_stages", Operation.failure_stages)


def _second_collective() -> RuntimeError:
    return RuntimeError(
        "the hook yielded a second collective, but was declared single-round; "
        "declare it with @staged(multi_round=True)"
    )
