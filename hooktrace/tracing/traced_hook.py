"""trace(): a hook in, a hook out, with the same name, signature and result.

    DDP --> TracedHook(state, bucket)
              |  slot = layout.find(bucket)       which model, generation, bucket
              |  call = BucketCall(slot, now)     stamps; pushed to the tracer's ring when the
              |                                   hook's result is there
              +- staged hook: StagedHook.launch(state, bucket, call)     the driver stamps stages
              +- opaque hook: hook(state, bucket).then(stamp)            call, return, completion

One link is added to an opaque hook's future: ``then`` runs before DDP reads the value and passes on
the very same tensor, and what it raises fails ``backward()`` properly.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..capture.calls import BucketCall, DeviceCall
from ..capture.layout import BucketSlot, LayoutTracker
from ..probes import (
    CallStart,
    DebugChecks,
    LocalProbes,
    ModelProbes,
    StepSampler,
    WireSampler,
)
from ..records import AnomalyRecord
from ..records.errors import HookError
from ..staging.groups import group_of, only_default_group
from ..staging.hook import HOOK_SIGNATURE, StagedHook
from ..staging.result_check import no_future, wrong_result
from .state import RECORDING
from .unsynchronised import watch_for_silence

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from ..capture.calls import Recorder
    from ..probes import SampledCall
    from .tracer import Tracer

__all__ = ["TracedHook", "instrument", "trace"]

logger = logging.getLogger("hooktrace")

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter
Hook = Callable[..., Any]


def trace(
    hook: Hook, *, tracer: Tracer | None = None, model: str | None = None, local: bool = False
) -> TracedHook:
    """Wrap a DDP communication hook so that each of its calls is recorded.

    ``hook``: anything that can be called with ``(state, bucket)`` and returns a future: a staged
    hook, a function with any parameter names, a bound method, a ``functools.partial``, a lambda, a
    callable object.  A hook that is traced already is traced anew, not twice.  ``tracer``: where
    the records go, the process's default tracer (``hooktrace.default_tracer``) by default.
    ``model``: the model's name in all records, ``model0``, ``model1``, ... by default; a second
    model that uses the same traced hook is ``model0#2``.  ``local``: the hook's results differ
    between ranks by design, so that is no anomaly; staged hooks declare it themselves.

    Returns a callable that DDP accepts wherever it accepts the hook, with the hook's
    ``__name__``, ``__qualname__`` and ``__wrapped__``.  It pickles when the hook pickles; the copy
    reports to the default tracer of the process that loads it.

    Raises ``TypeError`` when the hook cannot be called.
    """
    if not callable(hook):
        raise TypeError(
            f"cannot trace a {type(hook).__name__}; pass the hook itself, "
            "a callable that takes (state, bucket)"
        )
    if isinstance(hook, TracedHook):
        hook = hook.__wrapped__
    if isinstance(hook, functools.partial) and isinstance(hook.func, StagedHook) and not hook.args:
        hook = hook.func.bind(**hook.keywords)
    if tracer is None:
        from .default import default_tracer

        tracer = default_tracer()
    return TracedHook(hook, tracer, model, local or getattr(hook, "local", False))


def instrument(
    ddp: DistributedDataParallel,
    hook: Hook,
    state: object = None,
    *,
    tracer: Tracer | None = None,
    model: str | None = None,
    local: bool = False,
) -> TracedHook:
    """Register a traced hook on a DDP model and learn the names of its parameters.

    The same as ``ddp.register_comm_hook(state, trace(hook, ...))``, and records and layouts say
    ``layer3.conv.weight`` where they could otherwise only say ``4.2``.  Returns the traced hook;
    raises what ``trace`` and ``register_comm_hook`` raise.
    """
    traced = trace(hook, tracer=tracer, model=model, local=local)
    if isinstance(traced.__wrapped__, StagedHook):
        traced.__wrapped__.check_state(state)
        traced.__wrapped__.check_model(ddp.module)
    traced.learn(ddp)
    ddp.register_comm_hook(state, traced)
    return traced


class TracedHook:
    """A hook that reports to a tracer; made by ``trace``."""

    __name__: str
    __qualname__: str
    __wrapped__: Hook

    is_traced = True
    """Tells ``composed``, which must not have one inside."""

    def __init__(self, hook: Hook, tracer: Tracer, model: str | None, local: bool) -> None:
        functools.update_wrapper(self, hook, updated=())
        # A partial or a callable object has no name of its own, and DDP asks for one.
        named = hook.func if isinstance(hook, functools.partial) else hook
        self.__name__ = getattr(named, "__name__", type(named).__name__)
        self.__qualname__ = getattr(named, "__qualname__", type(named).__qualname__)
        self.__signature__ = HOOK_SIGNATURE
        self._hook = hook
        self._staged = hook if isinstance(hook, StagedHook) else None
        self._tracer = tracer
        self._model = model
        self._group: dist.ProcessGroup | None = None
        self._local = local
        self._compiled = False
        self._first_name = tracer.models.name(model)
        self._clock = tracer.clock
        label = self.__qualname__.split("<locals>.")[-1]
        self._layout = LayoutTracker(label, self._name_model, tracer.push, tracer.clock)
        tracer.models.register_layout(self._layout)
        self._key = id(self)
        _traced[self._key] = self

    def __reduce__(self) -> tuple[Callable[..., TracedHook], tuple[Hook, str | None, bool]]:
        return _restore, (self._hook, self._model, self._local)

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedHook:
        hook = copy.deepcopy(self._hook, memo)
        return TracedHook(hook, self._tracer, self._model, self._local)

    def __repr__(self) -> str:
        return f"<traced {self._hook!r}>"

    def learn(self, ddp: DistributedDataParallel) -> None:
        """Take a model's parameter names and process group, before its first backward pass."""
        self._layout.learn_names({id(p): name for name, p in ddp.module.named_parameters()})
        self._group = ddp.process_group
        silent = weakref.WeakMethod(self._note_silence)

        def report(passes: int) -> None:
            if (note := silent()) is not None:
                note(passes)

        watch_for_silence(ddp, self._layout, report)

    def __call__(self, state: Any, bucket: Any) -> Future:
        """Run the hook for one bucket, as DDP does, and record the call."""
        if isinstance(bucket, tuple):
            _note_compiled(self._key)
            return self._hook(state, bucket)
        tracer = self._tracer
        if tracer.state is not RECORDING:
            tracer.raise_alarm()
            return self._hook(state, bucket)
        ready = self._clock()
        staged = self._staged
        shadow = False
        slot = self._layout.find(bucket)
        if slot is None:
            slot, shadow = self._identify(state, bucket)
        call_type = DeviceCall if slot.has_events else BucketCall
        model = slot.model
        step = model.enter(slot.index)
        sampled: SampledCall | None = None
        recorder: Recorder = tracer
        if step >= model.sample_step and model.sampling is not None:
            sampled = model.sampling.enter(CallStart(slot, step, ready, bucket, state), tracer)
            if sampled is not None:
                recorder = sampled.recorder(tracer)
            model.sample_step = model.sampling.next_step
        call = call_type(slot, step, ready, shadow, staged is not None, recorder)
        slot.in_flight = call
        try:
            if staged is not None:
                future = staged.launch(state, bucket, call)
            else:
                future = self._launch_opaque(state, bucket, call)
        except BaseException:
            if sampled is not None:
                sampled.abandon()
            raise
        finally:
            call.launched = self._clock()
        return future if sampled is None else sampled.join(future)

    def _identify(self, state: Any, bucket: Any) -> tuple[BucketSlot, bool]:
        if not self._tracer.started:
            self._tracer.start()
        slot, shadow = self._layout.identify(bucket)
        if slot.model.step < 0 and slot.model.sampling is None:
            self._begin_sampling(state, slot, bucket)
        return slot, shadow

    def _begin_sampling(self, state: Any, slot: BucketSlot, bucket: Any) -> None:
        """Arrange for what is to be looked at on some steps of a new model."""
        every, opaque = self._tracer.error_every, self._staged is None or self._staged.has_opaque
        parts = [
            WireSampler(every) if every and opaque else None,
            self._comparison(state, slot, bucket) if every else None,
            DebugChecks() if self._tracer.debug else None,
        ]
        wanted = [part for part in parts if part is not None]
        if wanted:
            slot.model.sampling = StepSampler(wanted)
            slot.model.sample_step = slot.model.sampling.next_step

    def _comparison(
        self, state: Any, slot: BucketSlot, bucket: Any
    ) -> ModelProbes | LocalProbes | None:
        """Offer the other ranks to probe a new model, if that is wanted and can be done."""
        tracer = self._tracer
        whole = sum(math.prod(shape) for _, shape in slot.parameters) == slot.numel
        # A complex gradient is two real numbers in its bucket, a sparse one has no flat form.
        if not (slot.device_type == "cpu" and slot.is_dense and whole):
            return None
        if tracer.error == "local":
            return self._local_probes(slot)
        try:
            group = self._model_group(state)
            if group is not None:
                return ModelProbes(
                    group,
                    slot,
                    bucket.parameters(),
                    tracer.error_every,
                    all_buckets=tracer.error_all_buckets,
                    local=self._local,
                )
        except Exception as error:  # of torch's store or of a state's attributes
            logger.warning(
                "compression error of %s is not measured (%s: %s); training goes on",
                slot.model.name,
                type(error).__name__,
                error,
            )
        return None

    def _local_probes(self, slot: BucketSlot) -> LocalProbes | None:
        tracer = self._tracer
        why = None
        if self._staged is None or self._staged.has_opaque:
            why = (
                "is opaque, and where it compresses cannot be seen; write it with @hooktrace.staged"
            )
        elif self._staged.has_effects:
            why = "changes more than its state and the bucket, so it cannot be run on trial"
        if why is not None or self._staged is None:
            logger.warning(
                "local error of %s is not measured: hook %r %s, or use error='global'",
                slot.model.name,
                self.__qualname__,
                why,
            )
            return None
        return LocalProbes(
            self._staged.steps, tracer.error_every, all_buckets=tracer.error_all_buckets
        )

    def _model_group(self, state: Any) -> dist.ProcessGroup | None:
        """Return the group that the model's gradients are averaged over, ``None`` if unknown."""
        if self._group is not None or not dist.is_initialized():
            return self._group
        named = state if state is None else getattr(state, "process_group", state)
        if isinstance(named, dist.ProcessGroup):
            return named
        # Without a group in its state, a hook means the default one, unless it has its own.
        return group_of(None) if self._staged is not None or only_default_group() else None

    def _launch_opaque(self, state: Any, bucket: Any, call: BucketCall) -> Future:
        try:
            future = self._hook(state, bucket)
        except Exception as error:
            raise self._failure("hook", error, call) from error
        except BaseException as error:
            call.failed("hook", error)
            raise
        if not isinstance(future, torch._C.Future):
            raise self._failure("hook", no_future(future), call)

        def completed(arrived: Future) -> Any:
            try:
                value = arrived.value()
            except Exception as error:
                raise self._failure("pending", error, call) from error
            wrong = wrong_result(value, call)
            if wrong is not None:
                raise self._failure("pending", wrong, call) from wrong
            call.finished()
            return value

        return future.then(completed)

    def _failure(self, stage: str, error: Exception, call: BucketCall) -> HookError:
        """Put a failure on the record and return the error that names it."""
        call.failed(stage, error)
        reason = f"{type(error).__name__}: {error}"
        return HookError(self.__qualname__, call.slot.index, stage, reason)

    def _name_model(self, position: int) -> str:
        # The first model's name was given by trace(), so that names follow the order in the code.
        return self._first_name if position == 0 else self._tracer.models.name(self._first_name)

    def note_compiled(self) -> None:
        """Record, once, that this hook runs under the compiled python reducer."""
        if not self._compiled:
            self._compiled = True
            self._note(
                "compiled_reducer",
                "runs under the compiled python reducer, where it is part of a compiled graph and "
                "nothing can be stamped; set torch._dynamo.config.optimize_ddp = True to time its "
                "buckets",
            )

    def _note_silence(self, passes: int) -> None:
        self._note(
            "not_synchronised",
            f"was not called in {passes} backward passes in which DDP was to synchronise, so the "
            "ranks train apart; call ddp(...) and not ddp.module(...), and run the forward pass of "
            "the last micro-batch outside no_sync()",
        )

    def _note(self, kind: str, what: str) -> None:
        """Record an anomaly of the hook as a whole."""
        tracer = self._tracer
        if tracer.state is not RECORDING:
            return
        tracer.start()
        last = self._layout.models[-1] if self._layout.models else None
        tracer.push(
            AnomalyRecord(
                kind=kind,
                model=self._first_name,
                hook=self._layout.hook,
                generation=last.generation if last else 0,
                step=max(0, last.step) if last else 0,
                bucket=-1,
                stage="hook",
                time_ns=self._clock(),
                message=f"hook {self._layout.hook!r} of {self._first_name} {what}",
            )
        )


_traced: weakref.WeakValueDictionary[int, TracedHook] = weakref.WeakValueDictionary()


def _note_compiled(key: int) -> bool:
    _traced[key].note_compiled()
    return True


# So that it runs once, while the graph is made.  This is torch.compiler.assume_constant_result
# without its import of torch._dynamo, which takes a second.
_note_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _restore(hook: Hook, model: str | None, local: bool) -> TracedHook:
    return trace(hook, model=model, local=local)
