"""Staged hooks: a generator that yields collectives becomes a DDP communication hook.

    DDP --> StagedHook.launch(state, bucket, call) --> generator --yield--> Operation
                                                           ^                   | start()
                                                           |                   v
                                          send(result) ----+------------ future's callback

Compute before, between and after the yields is compress and decompress, a yield is wire time; the
driver stamps these borders on ``call`` when the hook is traced and does nothing more when it is
not.  A single-round hook returns ``future.then(callback)``: the same cost as torch's own hooks.  A
multi-round hook completes a future of its own, and its chains go through the serial lane
(``lane.py``), which never holds anything up where callbacks run inline (NCCL).  No callback waits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, overload

import torch
from torch._C._distributed_c10d import GradBucket

from .calls import BucketCall
from .collectives import Operation
from .errors import HookError
from .lane import LANE

__all__ = ["HOOK_SIGNATURE", "HookFunction", "StagedHook", "staged"]

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter
Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]
HookFunction: TypeAlias = Callable[[Any, Any], Steps]
"""A generator function ``(state, bucket)`` that yields operations and returns the averaged
gradients: a flat tensor of the bucket's length and dtype."""

HOOK_SIGNATURE = inspect.Signature(
    [
        inspect.Parameter("state", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        inspect.Parameter("bucket", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=GradBucket),
    ]
)
"""What DDP's check of a hook wants to see, whatever the wrapped function's parameters are."""


class StagedHook:
    """A DDP communication hook made of a generator function; see ``staged``.

    Pickles by reference, like a function, so it must be importable from its module.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: HookFunction, *, multi_round: bool, ddp_name: str | None) -> None:
        if not inspect.isgeneratorfunction(function):
            name = getattr(function, "__qualname__", repr(function))
            raise TypeError(
                f"@staged needs a generator function, and {name} yields nothing; "
                "yield its collectives, or use it as an ordinary hook"
            )
        try:
            inspect.signature(function).bind(None, None)
        except TypeError:
            raise TypeError(
                f"hook {function.__qualname__} cannot be called with two arguments; "
                "define it as (state, bucket)"
            ) from None
        functools.update_wrapper(self, function)
        self.__name__ = ddp_name or function.__name__
        self.__signature__ = HOOK_SIGNATURE
        self.multi_round = multi_round
        self._function = function

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<staged hook {self.__qualname__}>"

    def __call__(self, state: Any, bucket: Any) -> Future:
        """Run the hook for one bucket, as DDP does; returns a future of the flat result."""
        if isinstance(bucket, tuple):
            return self._run_on_parameter(state, bucket)
        return self.launch(state, bucket, None)

    def launch(self, state: Any, bucket: Any, call: BucketCall | None) -> Future:
        """Run the hook, stamping its stages on ``call``; ``None`` is the untraced hook.

        Raises ``HookError`` when the hook fails before its first collective.
        """
        generator = self._function(state, bucket)
        if self.multi_round:
            return _Chain(self, generator, bucket, call).submit()
        return self._launch_single(generator, bucket, call)

    def _launch_single(self, generator: Steps, bucket: Any, call: BucketCall | None) -> Future:
        stage = "compress"
        try:
            operation = next(generator)
            stage = "wire"
            if call is not None:
                call.issued(operation)
            future = operation.start()
        except StopIteration as stop:
            return self._completed(stop.value, bucket, call)
        except Exception as error:
            raise self.failure(bucket, stage, error, call) from error

        def finish(arrived: Future) -> torch.Tensor:
            if call is not None:
                call.arrived()
            stage = "wire"
            try:
                value = operation.result(arrived)
                stage = "decompress"
                generator.send(value)
            except StopIteration as stop:
                result = stop.value
            except Exception as error:
                raise self.failure(bucket, stage, error, call) from error
            else:
                raise self.failure(bucket, stage, _second_collective(), call)
            if not isinstance(result, torch.Tensor):
                raise self.failure(bucket, stage, _not_a_tensor(result), call)
            if call is not None:
                call.finished()
            return result

        return future.then(finish)

    def _completed(self, result: Any, bucket: Any, call: BucketCall | None) -> Future:
        """Return a completed future for a hook that communicated nothing."""
        if not isinstance(result, torch.Tensor):
            raise self.failure(bucket, "compress", _not_a_tensor(result), call)
        if call is not None:
            call.finished()
        future = _new_future(result)
        future.set_result(result)
        return future

    def failure(
        self, bucket: Any, stage: str, error: BaseException, call: BucketCall | None
    ) -> HookError:
        """Put a failure on the record and return the error that names it."""
        if call is not None:
            call.failed(stage, error)
        reason = f"{type(error).__name__}: {error}"
        return HookError(self.__qualname__, bucket.index(), stage, reason)

    def _run_on_parameter(
        self, state: Any, bucket: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Run under the compiled python reducer, which passes ``(param.grad, param)``.

        That reducer ignores what the hook returns, so the gradient is overwritten.
        """
        gradient, parameter = bucket
        generator = self._function(state, ParameterBucket(gradient, parameter))
        try:
            operation = next(generator)
            while True:
                operation = generator.send(operation.functional())
        except StopIteration as stop:
            gradient.copy_(stop.value.view_as(gradient))
        return gradient


class ParameterBucket:
    """One parameter's gradient in the shape of a ``GradBucket``, for the compiled reducer."""

    def __init__(self, gradient: torch.Tensor, parameter: torch.Tensor) -> None:
        self._gradient = gradient
        self._parameter = parameter

    def index(self) -> int:
        """Return 0: the compiled reducer has no buckets."""
        return 0

    def is_last(self) -> bool:
        """Return False: nobody knows."""
        return False

    def buffer(self) -> torch.Tensor:
        """Return the gradient, flat."""
        return self._gradient.flatten()

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradient."""
        return [self._gradient]

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameter."""
        return [self._parameter]


class _Chain:
    """All rounds of one call of a multi-round hook, with the future that DDP waits for.

    Rounds of one chain follow each other on whatever thread completes them.  ``add_done_callback``
    only logs what a callback raises, so nothing here may raise: a failure completes the future,
    and the ``then`` at its end raises it where DDP sees it.
    """

    __slots__ = ("_bucket", "_call", "_future", "_generator", "_hook")

    def __init__(
        self, hook: StagedHook, generator: Steps, bucket: Any, call: BucketCall | None
    ) -> None:
        self._hook = hook
        self._generator = generator
        self._bucket = bucket
        self._call = call
        self._future = _new_future(bucket.buffer())

    def submit(self) -> Future:
        """Queue the chain in the lane and return its future."""
        # Taken first: the chain may have ended, and its bucket be gone, when submit returns.
        is_last = self._bucket.is_last()
        result = self._future.then(_unwrap)
        LANE.submit(self._start)
        if is_last:
            LANE.drained()
        return result

    def _start(self) -> None:
        if self._call is not None:
            self._call.begun()
        self._advance(None, "compress")

    def _advance(self, value: torch.Tensor | None, stage: str) -> None:
        try:
            operation = self._generator.send(value)  # type: ignore[arg-type]
            stage = "wire"
            if self._call is not None:
                self._call.issued(operation)
            future = operation.start()
        except StopIteration as stop:
            self._end(stop.value, stage)
        except Exception as error:
            self._fail(stage, error)
        except BaseException as error:  # Ctrl-C: the lane must be free for what comes after it
            self._fail(stage, error)
            raise
        else:
            future.add_done_callback(functools.partial(self._arrived, operation))

    def _arrived(self, operation: Operation, future: Future) -> None:
        if self._call is not None:
            self._call.arrived()
        try:
            value = operation.result(future)
        except Exception as error:
            self._fail("wire", error)
        else:
            self._advance(value, "decompress")

    def _end(self, result: Any, stage: str) -> None:
        if not isinstance(result, torch.Tensor):
            self._fail(stage, _not_a_tensor(result))
            return
        try:
            if self._call is not None:
                self._call.finished()
            self._future.set_result(result)
        finally:
            LANE.release()

    def _fail(self, stage: str, error: BaseException) -> None:
        try:
            failure = self._hook.failure(self._bucket, stage, error, self._call)
            failure.__cause__ = error
            self._future.set_exception(failure)
        finally:
            LANE.release()


def _unwrap(future: Future) -> torch.Tensor:
    """Return the value, or raise the exception: DDP would read an exception as the value."""
    return future.value()  # type: ignore[no-any-return]


def _new_future(tensor: torch.Tensor) -> Future:
    """Return a future that keeps its callbacks on the stream of the tensor's device."""
    device = tensor.device
    return torch.futures.Future(devices=None if device.type == "cpu" else [device])


def _second_collective() -> RuntimeError:
    return RuntimeError(
        "the hook yielded a second collective, but was declared single-round; "
        "declare it with @staged(multi_round=True)"
    )


def _not_a_tensor(result: Any) -> TypeError:
    return TypeError(
        f"the hook returned {type(result).__name__}; return the averaged gradients, "
        "a flat tensor like bucket.buffer()"
    )


@overload
def staged(function: HookFunction, /) -> StagedHook: ...
@overload
def staged(
    *, multi_round: bool = False, ddp_name: str | None = None
) -> Callable[[HookFunction], StagedHook]: ...
def staged(
    function: HookFunction | None = None,
    /,
    *,
    multi_round: bool = False,
    ddp_name: str | None = None,
) -> StagedHook | Callable[[HookFunction], StagedHook]:
    """Turn a generator function into a DDP communication hook whose stages can be seen.

    The function takes ``(state, bucket)``, yields operations of ``hooktrace.collectives`` and
    gets each one's result back from its ``yield``; it returns the averaged gradients, a flat
    tensor of the bucket's length and dtype::

        @hooktrace.staged
        def average(state, bucket):
            group = group_of(state)
            return (yield AllReduce(bucket.buffer().div_(group.size()), group))

    ``multi_round``: declare a hook that yields more than once.  Its buckets then go one whole
    chain after another, in bucket order, so that all ranks issue their collectives in the same
    order.  ``ddp_name``: the ``__name__`` that DDP sees, where it refuses the function's own.

    Raises ``TypeError`` for anything that is not a generator function.
    """
    if function is not None:
        return StagedHook(function, multi_round=multi_round, ddp_name=ddp_name)
    return functools.partial(StagedHook, multi_round=multi_round, ddp_name=ddp_name)
