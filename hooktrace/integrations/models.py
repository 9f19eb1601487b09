"""Every DDP model of the process, and what takes its buckets: one dispatcher each.

    model made --know--> Dispatcher --first registration or forward pass--> the reducer's hook
    ddp.register_comm_hook, torch's own checks and lists --> dist._register_comm_hook --take--+
    ddp._register_builtin_comm_hook --> dist._register_builtin_comm_hook ------------------+  |
    first forward pass without a hook: DDP's own average ---------------------------------+|  |
                                          the dispatcher's traced hook, and from now on its call

torch takes one hook a model.  Here that is the dispatcher, so that a script that registers late, as
some do after the first backward pass, finds the place free, and a second time taken.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch._C._distributed_c10d import BuiltinCommHookType
from torch.nn.parallel import DistributedDataParallel

from .. import hooks
from ..hooks.catalogue import candidates
from ..records.errors import HookError
from ..staging.hook import Hook, StagedHook
from ..tracing import hookless
from ..tracing.ddp_average import DDPAverage, ddp_allreduce
from ..tracing.options import HOOK
from ..tracing.trace import instrument, trace
from ..tracing.traced_hook import TracedHook
from ..tracing.tracer import default_tracer
from . import ending
from .failing_hooks import failure
from .patches import replace, warn_once

if TYPE_CHECKING:
    from ..hooks.catalogue import HookEntry

logger = logging.getLogger("hooktrace")

_register: Any = dist._register_comm_hook  # type: ignore[attr-defined]  # private


class Dispatcher:
    """The hook of one model's reducer: passes each bucket to the hook that the model has now.

    ``chosen``: the script registered it; without one it is DDP's average.  ``tuned``: of a job that
    is tuned (``tuning.take``), where other hooks run in the place of either by turns.
    """

    def __init__(self, ddp: DistributedDataParallel, tuned: Callable[..., Any] | None) -> None:
        self._ddp = weakref.ref(ddp)
        self._hook: Hook | None = None
        self._state: Any = None
        self._is_foreign = False
        self._tuned = tuned
        self.chosen = False

    def __call__(self, state: object, bucket: Any) -> Any:
        """Run the hook for one bucket; what the script's own raises is what the script sees."""
        try:
            return self._hook(self._state, bucket)  # type: ignore[misc]  # registered with one
        except HookError as error:
            own = error.__cause__ if self._is_foreign else None
            if own is None:
                raise
        raise own  # outside, where it gets no context

    def take(self, reducer: Any, hook: Hook, state: Any, chosen: bool) -> None:
        """Let a hook take this model's buckets; raises where the reducer has one by other ways."""
        ddp = self._ddp()
        if self._tuned is not None and ddp is not None:
            hook, state = self._tuned(ddp, (hook, state), self._change)
        if ddp is not None:
            hookless.leave(ddp)
        if self._hook is None:
            _register(reducer, None, self)
        elif isinstance(self._hook, TracedHook):
            self._hook.notices.stop_watching()
        ending.model_seen()
        self._is_foreign = not isinstance(hook, StagedHook | TracedHook)
        self._hook, self._state, self.chosen = self._traced(hook), state, chosen

    def _change(self, hook: Hook, state: Any) -> None:
        """Have another traced hook called from the next bucket on."""
        self._hook, self._state = hook, state

    def expect_failure(self, how: str | None) -> None:
        """Take note of how the hook fails, if that is known."""
        if how is not None and isinstance(self._hook, TracedHook):
            self._hook.notices.note("fails_on_gloo", f"fails: {how} on gloo")

    def average(self) -> None:
        """Do what DDP does without a hook, if there is none by now."""
        ddp = self._ddp()
        if self._hook is not None or ddp is None:
            return
        try:
            asked = hook_asked()
            if asked is None and self._tuned is None and self._records_without(ddp):
                return
            if asked is None:
                self.take(ddp.reducer, ddp_allreduce, DDPAverage(ddp), False)
            else:
                asked.hook.check_model(ddp.module)
                self.take(ddp.reducer, asked.hook, asked.make_state(ddp.process_group), False)
        except (RuntimeError, TypeError) as error:
            logger.warning("a DDP model is not traced: %s", error)

    @staticmethod
    def _records_without(ddp: DistributedDataParallel) -> bool:
        """Record what DDP itself sends, where torch tells of it without a hook."""
        ending.model_seen()
        if ddp in hookless.models:  # by the script
            return True
        if not hookless.can_watch(ddp, default_tracer()):
            return False
        instrument(ddp, model=type(ddp.module).__name__)
        return True

    def builtin(self, kind: BuiltinCommHookType) -> tuple[StagedHook, Any]:
        """Return the hook that does what torch's C++ one does, and its state."""
        is_plain = kind == BuiltinCommHookType.ALLREDUCE
        hook: StagedHook = hooks.allreduce_hook if is_plain else hooks.fp16_compress_hook
        ddp = self._ddp()
        return hook, None if ddp is None else ddp.process_group

    def _traced(self, hook: Hook) -> Hook:
        ddp = self._ddp()
        if isinstance(hook, TracedHook) or ddp is None:
            return hook  # by the script, which learns the names itself
        try:
            traced = trace(hook, model=type(ddp.module).__name__)
            traced.learn(ddp)
        except Exception:  # whatever it is, training goes on
            logger.exception("a hook is not traced; training goes on")
            return hook
        return traced


_dispatchers: weakref.WeakKeyDictionary[Any, Dispatcher] = weakref.WeakKeyDictionary()
"""By reducer, which holds its dispatcher once that is registered, and goes with its model."""


def know(ddp: DistributedDataParallel, tuned: Callable[..., Any] | None = None) -> None:
    """Take note of a model that has just got its reducer; one without buckets stays as it is."""
    if not hookless.has_buckets(ddp):
        logger.warning(
            "a DDP model is not traced, since the compiled python reducer has no buckets; set "
            "torch._dynamo.config.optimize_ddp = True to trace it"
        )
        return
    _patch()
    _dispatchers[ddp.reducer] = Dispatcher(ddp, tuned)


@functools.cache
def _patch() -> None:
    """Take the place of what registers hooks, and of what a model does at first; once.

    It stays: models that are known need it, and for others it is as torch's.
    """
    replace(dist, "_register_comm_hook", _taking)
    replace(dist, "_register_builtin_comm_hook", _taking_builtin)
    replace(DistributedDataParallel, "register_comm_hook", _warning_of_failures)
    replace(DistributedDataParallel, "_lazy_init", _averaging)
    replace(DistributedDataParallel, "__setstate__", _tracing_copies)


def hook_asked() -> HookEntry | None:
    """Return the hook that the environment asks for, of models without one of their own."""
    name = HOOK.read()
    if name is None:
        return None
    found = {one.name: one for one in candidates()}
    if name not in found:
        logger.warning("HOOKTRACE_HOOK=%s has no effect; use one of %s", name, ", ".join(found))
    return found.get(name)


def _taking(original: Any) -> Any:
    def _register_comm_hook(reducer: Any, state: Any, hook: Hook) -> None:
        dispatcher = _dispatchers.get(reducer)
        if dispatcher is None or dispatcher.chosen:  # of before hooktrace; or torch refuses it
            original(reducer, state, hook)
        else:
            dispatcher.take(reducer, hook, state, True)

    return _register_comm_hook


def _taking_builtin(original: Any) -> Any:
    def _register_builtin_comm_hook(reducer: Any, kind: BuiltinCommHookType) -> None:
        dispatcher = _dispatchers.get(reducer)
        if dispatcher is None or dispatcher.chosen:
            original(reducer, kind)
        else:
            dispatcher.take(reducer, *dispatcher.builtin(kind), True)

    return _register_builtin_comm_hook


def _warning_of_failures(original: Any) -> Any:
    def register_comm_hook(self: DistributedDataParallel, state: Any, hook: Hook) -> None:
        dispatcher = _dispatcher(self)
        how = None if dispatcher is None else failure(hook, self)
        if how is not None:  # before: torch may refuse it
            logger.warning("%s on gloo; register hooktrace.hooks' of the same name", how)
        original(self, state, hook)
        if dispatcher is not None:
            dispatcher.expect_failure(how)

    return register_comm_hook


def _averaging(original: Any) -> Any:
    def _lazy_init(self: DistributedDataParallel) -> None:
        original(self)  # an optimiser inside the backward pass registers a hook here
        average(self)

    return _lazy_init


def _tracing_copies(original: Any) -> Any:
    def set_state(self: DistributedDataParallel, state: Any) -> None:
        original(self, state)
        if _dispatcher(self) is not None and hookless.listed_hooks(self):
            warn_once(
                "a copied or unpickled DDP model has lost its communication hook, though it lists "
                "one: torch leaves it behind, and averages plainly; register it again on the copy"
            )
        average(self)

    return set_state


def _dispatcher(ddp: DistributedDataParallel) -> Dispatcher | None:
    reducer = getattr(ddp, "reducer", None)  # none where all reductions are delayed
    return None if reducer is None else _dispatchers.get(reducer)


def average(ddp: DistributedDataParallel) -> None:
    """Have a known model's buckets taken, if no hook was registered by now."""
    dispatcher = _dispatcher(ddp)
    if dispatcher is not None:
        dispatcher.average()
