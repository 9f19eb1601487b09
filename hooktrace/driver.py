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

Hooks are built of hooks: a generator runs another hook, staged or opaque, with
``result = yield from steps_of(hook, state, bucket)``, and ``composed`` makes a hook of it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, overload

import torch
from torch._C._distributed_c10d import GradBucket

from .calls import BucketCall
from .collectives import HookCall, Operation
from .errors import HookError
from .lane import LANE

__all__ = [
    "HOOK_SIGNATURE",
    "HookFunction",
    "StagedHook",
    "composed",
    "hook_name",
    "staged",
    "steps_of",
]

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter
Hook = Callable[..., Any]
Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]
HookFunction: TypeAlias = Callable[..., Steps]
"""A generator function ``(state, bucket)`` that yields operations and returns the averaged
gradients: a flat tensor of the bucket's length and dtype.  What it takes beyond these two has a
default and is set with ``StagedHook.bind``."""

MultiRound: TypeAlias = bool | Callable[[Any], bool]
"""Whether a hook yields more than once; a function of the state where that changes over time."""

StateCheck: TypeAlias = Callable[[Any], object]
"""Raises ``TypeError`` or ``ValueError`` for a state that a hook cannot work with."""

HOOK_SIGNATURE = inspect.Signature(
    [
        inspect.Parameter("state", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        inspect.Parameter("bucket", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=GradBucket),
    ]
)
"""What DDP's check of a hook wants to see, whatever the wrapped function's parameters are."""


class StagedHook:
    """A DDP communication hook made of a generator function; see ``staged``.

    Pickles by reference, like a function, so it must be importable from its module; one that a
    function made (``bind``, ``composed``) pickles as the call that made it.

    ``multi_round`` is what was declared; ``floating`` says that the hook takes real floating-point
    gradients only.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: HookFunction,
        *,
        multi_round: MultiRound = False,
        floating: bool = False,
        check: StateCheck | None = None,
        ddp_name: str | None = None,
        name: str | None = None,
        made_by: tuple[Callable[..., StagedHook], tuple[Any, ...]] | None = None,
    ) -> None:
        if not inspect.isgeneratorfunction(function):
            qualname = getattr(function, "__qualname__", repr(function))
            raise TypeError(
                f"@staged needs a generator function, and {qualname} yields nothing; "
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
        self.__qualname__ = name or function.__qualname__
        self.__name__ = ddp_name or name or function.__name__
        self.__signature__ = HOOK_SIGNATURE
        self.multi_round = multi_round
        self.floating = floating
        self._check = check
        self._function = function
        self._made_by = made_by
        self._guarded = floating or callable(multi_round)

    def __reduce__(self) -> str | tuple[Callable[..., StagedHook], tuple[Any, ...]]:
        return self._made_by or self.__qualname__

    def __copy__(self) -> StagedHook:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> StagedHook:
        return self

    def __repr__(self) -> str:
        return f"<staged hook {self.__qualname__}>"

    def bind(self, **options: Any) -> StagedHook:
        """Return this hook with options other than the defaults.

        DDP calls a hook with two arguments and does not take a ``functools.partial``; this takes
        its place: ``quantization_perchannel_hook.bind(bucket_size=128)``.

        Raises ``TypeError`` for an option that the hook does not have.
        """
        try:
            inspect.signature(self._function).bind(None, None, **options)
        except TypeError as error:
            raise TypeError(
                f"hook {self.__qualname__}: {error}; its options are "
                f"{', '.join(self.options()) or 'none'}"
            ) from None
        shown = ", ".join(f"{name}={value!r}" for name, value in options.items())
        bound = functools.partial(self._function, **options)
        functools.update_wrapper(bound, self._function)
        return StagedHook(
            bound,
            multi_round=self.multi_round,
            floating=self.floating,
            check=self._check,
            name=f"{self.__qualname__}({shown})",
            made_by=(_bind, (self, options)),
        )

    def options(self) -> tuple[str, ...]:
        """Return the names of what can be set with ``bind``."""
        return tuple(inspect.signature(self._function).parameters)[2:]

    def steps(self, state: Any, bucket: Any) -> Steps:
        """Return the hook's generator for one bucket; see ``steps_of``."""
        return self._function(state, bucket)

    def check_state(self, state: Any) -> None:
        """Raise ``TypeError`` or ``ValueError`` for a state that the hook cannot work with."""
        if self._check is not None:
            self._check(state)

    def check_model(self, model: torch.nn.Module) -> None:
        """Raise ``TypeError`` for a model that has gradients the hook cannot work with."""
        if not self.floating:
            return
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and not parameter.is_floating_point():
                raise TypeError(_not_floating(self, name, parameter.dtype))
        for name, module in model.named_modules():
            # By which DDP, too, finds out which gradients will be sparse.
            if getattr(module, "sparse", False) and isinstance(module, _EMBEDDINGS):
                raise TypeError(_not_floating(self, name, "sparse"))

    def __call__(self, state: Any, bucket: Any) -> Future:
        """Run the hook for one bucket, as DDP does; returns a future of the flat result."""
        if isinstance(bucket, tuple):
            return self._run_on_parameter(state, bucket)
        return self.launch(state, bucket, None)

    def launch(self, state: Any, bucket: Any, call: BucketCall | None) -> Future:
        """Run the hook, stamping its stages on ``call``; ``None`` is the untraced hook.

        Raises ``HookError`` when the hook fails before its first collective.
        """
        multi_round = self.multi_round
        if self._guarded:
            try:
                multi_round = self._admit(state, bucket)
            except Exception as error:
                raise self.failure(bucket, "compress", error, call) from error
        generator = self._function(state, bucket)
        if multi_round:
            return _Chain(self, generator, bucket, call).submit()
        return self._launch_single(generator, bucket, call)

    def _admit(self, state: Any, bucket: Any) -> bool:
        """Check what a hook is called with; return whether it will be multi-round."""
        if self.floating:
            buffer = bucket.buffer()
            if buffer.layout is not torch.strided:
                raise TypeError(_not_floating(self, f"bucket {bucket.index()}", "sparse"))
            if not buffer.is_floating_point():
                raise TypeError(_not_floating(self, f"bucket {bucket.index()}", buffer.dtype))
        if not callable(self.multi_round):
            return self.multi_round
        self.check_state(state)  # or the question would fail in a way that says nothing
        return self.multi_round(state)

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
        if self.multi_round:
            raise TypeError(
                f"hook {self.__qualname__} uses several collectives for a bucket and cannot run "
                "under the compiled python reducer, which has no buckets; use a single-round hook, "
                "or set torch._dynamo.config.optimize_ddp = True"
            )
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

    def set_buffer(self, tensor: torch.Tensor) -> None:
        """Replace the gradient."""
        self._gradient = tensor.view_as(self._gradient)

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


_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


def _not_floating(hook: StagedHook, what: str, kind: object) -> str:
    return (
        f"hook {hook.__qualname__} takes dense real floating-point gradients, and those of {what} "
        f"are {str(kind).removeprefix('torch.')}; use allreduce_hook for this model, "
        "or keep such parameters out of DDP"
    )


def _bind(hook: StagedHook, options: dict[str, Any]) -> StagedHook:
    return hook.bind(**options)


def steps_of(hook: Hook, state: Any, bucket: Any) -> Steps:
    """Return the steps of a hook, to be run inside another one; the result is the hook's.

    ``result = yield from steps_of(hook, state, bucket)``: the collectives of a staged hook are seen
    one by one; of an opaque hook, a function that returns a future, only the future is.
    """
    if isinstance(hook, StagedHook):
        return hook.steps(state, bucket)
    return _opaque_steps(hook, state, bucket)


def _opaque_steps(hook: Hook, state: Any, bucket: Any) -> Steps:
    return (yield HookCall(hook, state, bucket))


def composed(
    function: HookFunction,
    hook: Hook,
    *,
    name: str,
    made_by: tuple[Callable[..., StagedHook], tuple[Any, ...]],
    floating: bool = False,
) -> StagedHook:
    """Return a staged hook whose generator function runs ``hook`` with ``steps_of``.

    ``name``: of the parts, such as ``fp16_compress_wrapper(powerSGD_hook)``.  ``made_by``: the
    function and the arguments that make this very hook, by which it pickles.  It is multi-round if
    ``hook`` is, and checks its state as ``hook`` does.

    Raises ``TypeError`` for what is no hook, and for a traced one.
    """
    if not callable(hook):
        raise TypeError(
            f"{name} needs a hook, a callable that takes (state, bucket), not a "
            f"{type(hook).__name__}"
        )
    if getattr(hook, "is_traced", False):
        raise TypeError(
            f"{name} was given a hook that is traced already; "
            "trace the outermost hook: trace(wrapper(hook))"
        )
    inner = hook if isinstance(hook, StagedHook) else None
    return StagedHook(
        function,
        multi_round=inner.multi_round if inner else False,
        floating=floating or bool(inner and inner.floating),
        check=inner.check_state if inner else None,
        name=name,
        made_by=made_by,
    )


def hook_name(hook: Hook) -> str:
    """Return the name by which a hook is shown."""
    return getattr(hook, "__qualname__", type(hook).__qualname__).split("<locals>.")[-1]


@overload
def staged(function: HookFunction, /) -> StagedHook: ...
@overload
def staged(
    *,
    multi_round: MultiRound = False,
    floating: bool = False,
    check: StateCheck | None = None,
    ddp_name: str | None = None,
) -> Callable[[HookFunction], StagedHook]: ...
def staged(
    function: HookFunction | None = None,
    /,
    **declared: Any,
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
    order.  A function of the state, asked for each bucket, where a hook is multi-round only at
    times; all ranks must answer alike.  ``floating``: refuse gradients that are not dense, real
    and floating-point, with an error that says so.  ``check``: called with the state by
    ``instrument`` and ``register_ddp_comm_hook``; raises where the hook cannot work with it.
    ``ddp_name``: the ``__name__`` that DDP sees, where it refuses the function's own.

    Raises ``TypeError`` for anything that is not a generator function.
    """
    if function is not None:
        return StagedHook(function, **declared)
    return functools.partial(StagedHook, **declared)
