"""Staged hooks: a generator that yields collectives becomes a DDP communication hook.

    @staged function --> StagedHook --DDP's call--> launch(state, bucket, run) --> future

Compute before, between and after the yields is compress and decompress, a yield is wire time.  A
hook may run another one inside (``steps_of``, ``composed``), whose operations are then seen too.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeAlias, overload

import torch

from .collectives import Future, HookCall
from .driver import StagedRun, Steps, completed
from .hook_checks import compiled_reducer, refuse_bucket, refuse_model

HookFunction: TypeAlias = Callable[..., Steps]
"""What ``staged`` takes; ``StagedHook.bind`` sets what it has beyond a state and a bucket."""
MultiRound: TypeAlias = bool | Callable[[Any], bool]
StateCheck: TypeAlias = Callable[[Any], object]
Hook: TypeAlias = Callable[..., Any]

HOOK_SIGNATURE = inspect.signature(lambda state, bucket: None)
"""What DDP's check of a hook wants to see, whatever the wrapped function's parameters are."""


class StagedHook:
    """A DDP communication hook made of a generator function; see ``staged``.

    Pickles by reference, like a function; one that a function made (``bind``, ``composed``) as the
    call that made it.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: HookFunction,
        *,
        multi_round: MultiRound = False,
        floating: bool = False,
        local: bool = False,
        has_effects: bool = False,
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
        self.local = local
        self.has_effects = has_effects
        self._check = check
        self._function = function
        self._made_by = made_by
        self._guarded = floating or callable(multi_round)

    @property
    def declared(self) -> dict[str, Any]:
        """What it says of itself, for hooks that are made of it."""
        names = ("multi_round", "floating", "local", "has_effects")
        return {name: getattr(self, name) for name in names} | {"check": self._check}

    def __reduce__(self) -> str | tuple[Callable[..., StagedHook], tuple[Any, ...]]:
        return self._made_by or self.__qualname__

    def __repr__(self) -> str:
        return f"<staged hook {self.__qualname__}>"

    def bind(self, **options: Any) -> StagedHook:
        """Return this hook with other options: ``average_hook.bind(bucket_size=128)``.

        Raises ``TypeError`` for an option that the hook does not have.
        """
        signature = inspect.signature(self._function)
        try:
            signature.bind(None, None, **options)
        except TypeError as error:
            known = ", ".join([*signature.parameters][2:]) or "none"
            message = f"hook {self.__qualname__}: {error}; its options are {known}"
            raise TypeError(message) from None
        shown = ", ".join(f"{name}={value!r}" for name, value in options.items())
        bound = functools.partial(self._function, **options)
        functools.update_wrapper(bound, self._function)
        name = f"{self.__qualname__}({shown})"
        made_by = (operator.methodcaller("bind", **options), (self,))
        return StagedHook(bound, name=name, made_by=made_by, **self.declared)

    def check_state(self, state: Any) -> None:
        """Raise ``TypeError`` or ``ValueError`` for a state that the hook cannot work with."""
        if self._check is not None:
            self._check(state)

    def check_model(self, model: torch.nn.Module) -> None:
        """Raise ``TypeError`` for a model that has gradients the hook cannot work with."""
        if self.floating:
            refuse_model(self.__qualname__, model)

    def __call__(self, state: Any, bucket: Any) -> Future:
        """Run the hook for one bucket, as DDP does; returns a future of the flat result."""
        if isinstance(bucket, tuple):
            raise compiled_reducer(self.__qualname__)
        run = StagedRun.__new__(StagedRun)
        run.clock = None  # nothing is stamped
        return self.launch(state, bucket, run)

    def launch(  # noqa: PLR0912  # see the driver
        self, state: Any, bucket: Any, run: StagedRun
    ) -> Future:
        """Run the hook, driven by ``run``; returns a future of the flat result.

        Raises ``HookError`` when the hook fails before its first collective is under way.
        """
        # As the run's ``_next_round`` does, without the calls: see the driver.
        run.name = self.__qualname__
        run.state = state
        run.bucket = bucket
        run.yielded = run.own = None
        multi_round = self.multi_round
        if self._guarded:
            try:
                multi_round = self._admit(state, bucket)
            except Exception as error:
                run.fail("compress", error)
        function = self._function
        run.generator = generator = function(state, bucket)
        if multi_round:
            return run.take_turns()
        try:
            operation = next(generator)
        except StopIteration as stop:
            return completed(run.end(stop.value))
        except BaseException as error:
            run.fail("compress", error)
        run.yielded = operation
        clock = run.clock
        if clock is not None:
            if run.on_device:
                run.record()
            try:
                run.issued_at = clock()
                run.operation = operation
            except Exception as error:
                run.lose_stamps(error)
        try:
            future = operation.start()
        except BaseException as error:
            run.fail("wire", error)
        if clock is not None:
            # Not left to the callback, which competes for the interpreter lock.
            try:
                slot = run.slot
                usual = slot.usual
                if usual is not None and type(operation) is usual[0]:
                    _, group, collective = usual
                    buffer_of, tensor = slot.buffer, operation.tensor
                    if (
                        tensor is buffer_of()
                        and operation.group is group()
                        and tensor.numel() == slot.numel
                        and run.operation is operation
                    ):
                        run.operation, run.own = collective, tensor
            except Exception as error:  # of an operation of the user's own
                run.lose_stamps(error)
        return future.then(run.finish)

    def _admit(self, state: Any, bucket: Any) -> bool:
        """Check what a hook is called with; return whether it will be multi-round."""
        if self.floating:
            refuse_bucket(self.__qualname__, bucket)
        if not callable(self.multi_round):
            return self.multi_round
        self.check_state(state)  # or the question would fail in a way that says nothing
        return self.multi_round(state)


@overload
def staged(function: HookFunction, /) -> StagedHook: ...
@overload
def staged(
    *,
    multi_round: MultiRound = False,
    floating: bool = False,
    local: bool = False,
    has_effects: bool = False,
    check: StateCheck | None = None,
    ddp_name: str | None = None,
) -> Callable[[HookFunction], StagedHook]: ...
def staged(
    function: HookFunction | None = None, /, **declared: Any
) -> StagedHook | Callable[[HookFunction], StagedHook]:
    """Turn a generator function into a DDP communication hook whose stages can be seen.

    The function takes ``(state, bucket)``, yields operations such as ``AllReduce`` and gets each
    one's result back from its ``yield``; it returns the averaged gradients, a flat tensor of the
    bucket's length and dtype::

        @hooktrace.staged
        def average(state, bucket):
            group = group_of(state)
            return (yield AllReduce(bucket.buffer().div_(group.size()), group))

    ``multi_round``: declare a hook that yields more than once.  Its buckets then go one whole
    call after another, in bucket order, so that all ranks issue their collectives in the same
    order.  A function of the state, asked for each bucket, where a hook is multi-round only at
    times; all ranks must answer alike.  ``floating``: refuse gradients that are not dense, real
    and floating-point, with an error that says so.  ``local``: the ranks' results differ by
    design, which is then no anomaly.  ``has_effects``: the hook changes more than its state and the
    bucket, so that ``hooktrace tune`` tries no other one in its place.  ``check``: called with the
    state by ``instrument`` and ``register_ddp_comm_hook``; raises where the hook cannot work with
    it.  ``ddp_name``: the ``__name__`` that DDP sees, where it refuses the function's own.

    Raises ``TypeError`` for anything that is not a generator function.
    """
    if function is not None:
        return StagedHook(function, **declared)
    return functools.partial(StagedHook, **declared)


def steps_of(hook: Hook, state: Any, bucket: Any) -> Steps:
    """Return the steps of a hook, to be run inside another one; the result is the hook's.

    ``result = yield from steps_of(hook, state, bucket)``: the collectives of a staged hook are seen
    one by one; of a plain hook, a function that returns a future, only the future is.
    """
    if isinstance(hook, StagedHook):
        return hook._function(state, bucket)
    return _plain_steps(hook, state, bucket)


def _plain_steps(hook: Hook, state: Any, bucket: Any) -> Steps:
    return (yield HookCall(functools.partial(hook, state, bucket)))


def composed(
    function: HookFunction,
    hook: Hook,
    *,
    name: str,
    made_by: tuple[Callable[..., StagedHook], tuple[Any, ...]],
    **declared: bool,
) -> StagedHook:
    """Return a staged hook whose generator function runs ``hook`` with ``steps_of``.

    It is declared as ``hook`` is, but for what is ``declared`` here.  ``made_by``: the function and
    the arguments that make this very hook, by which it pickles.  Raises ``TypeError`` for what is
    no hook, and for a traced one.
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
    inner = hook.declared if isinstance(hook, StagedHook) else {}
    return StagedHook(function, name=name, made_by=made_by, **(inner | declared))


def hook_name(hook: Hook) -> str:
    """Return the name by which a hook is shown."""
    return getattr(hook, "__qualname__", type(hook).__qualname__).split("<locals>.")[-1]
