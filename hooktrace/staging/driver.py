"""The one driver of staged hooks: a generator, advanced from operation to operation to its result.

    StagedHook.launch --Operation.start--> future --then--> StagedRun.finish   one collective: usual
    take_turns        --advance, issue, arrive, and again-->      several, in turn (``order.py``)
    run_synchronously --advance, issue, wait, and again-->        FSDP's: nobody gets a future
    run_answered      --advance, answer, and again-->             on trial, compiled: no future

``HookRun`` has the steps.  ``runs.py`` writes them out in one function for the usual way, where a
function call costs a microsecond or two, since DDP calls a hook with cold caches.  FSDP calls its
collectives where it waits for them, so there the thread (or, on a device, its current stream) waits
for each one.

Stamps do not raise.  What the hook raises is put on the record and leaves as a ``HookError`` that
names it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch

from ..records.errors import HookError
from . import streams
from .calls import BucketCall
from .hook_checks import wrong_result
from .operations import FailureStages, Operation

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter
Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]


class Ended(NamedTuple):
    """What a hook has returned."""

    result: torch.Tensor


HELD = ("bucket", "generator", "name", "state", "yielded")
"""The slots of a run.  Its class has them, and ``HookRun`` none: of two bases one may have some."""

NO_SLOTS: tuple[str, ...] = ()


class HookRun:
    """One call of a hook: its generator, and the operation that it has yielded last.

    ``name``: of the hook, for its errors.  ``state``, ``bucket``: what the hook was called with.
    ``call``: what the stamps are written on, ``None`` where nobody wants any.
    """

    __slots__ = NO_SLOTS

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
        raise_for(self.name, self.bucket, stage, error, self.call)


def raise_for(
    name: str, bucket: Any, stage: str, error: BaseException, call: BucketCall | None
) -> NoReturn:
    """Raise a ``HookError``; what is no ``Exception``, as Ctrl-C, is raised as it is."""
    if call is not None:
        call.failed(stage, error)
    if not isinstance(error, Exception):
        raise error
    # The call knows better than a bucket of a static graph's first pass (``layout.py``).
    index = bucket.index() if call is None else call.slot.index
    raise HookError(name, index, stage, f"{type(error).__name__}: {error}") from error


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


def second_collective() -> RuntimeError:
    """Return the error of a hook that was declared single-round, and yields once more."""
    return RuntimeError(
        "the hook yielded a second collective, but was declared single-round; "
        "declare it with @staged(multi_round=True)"
    )


class _WaitingRun(HookRun):
    """A call whose operations are waited for one by one; its result is as long as ``expected``."""

    __slots__ = (*HELD, "_call", "_expected")

    def __init__(self, call: BucketCall | None, expected: int) -> None:
        self._call = call
        self._expected = expected

    @property
    def call(self) -> BucketCall | None:
        """What takes the stamps."""
        return self._call

    def end(self, result: Any) -> torch.Tensor:
        """Return the result, checked."""
        if not isinstance(result, torch.Tensor) or result.numel() != self._expected:
            got = f"{tuple(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
            wrong = TypeError(
                f"the hook returned {got}; return a tensor of {self._expected} elements"
            )
            self.fail(self.own_stage, wrong)
        return result


def run_synchronously(  # noqa: PLR0917  # as the driver's
    name: str, generator: Steps, state: Any, place: Any, call: BucketCall | None, expected: int
) -> torch.Tensor:
    """Run a hook to its end and return its result, a tensor of ``expected`` elements.

    ``state``: the generator's first argument.  ``place``: what the hook is called for; its
    ``index()`` names it in errors.  ``call``: takes the stamps, but for the last one, which is the
    caller's.  Raises ``HookError`` for what the hook or a collective raised.
    """
    run = _WaitingRun(call, expected)
    run.begin(name, generator, state, place)
    step = run.advance(None)
    while not isinstance(step, Ended):
        issued = run.issue(step)
        issued.wait()
        step = run.advance(run.arrive(issued))
    return step.result
