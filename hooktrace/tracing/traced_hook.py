"""The traced hook: what DDP calls in the hook's place.

    DDP --> TracedHook(state, bucket)
              |  slot = layout.by_buffer[...]    which model, rebuild, bucket
              |  run = StagedRun or PlainRun     driver and stamps in one, among its step's calls,
              |                                   which the tracer's ring has from their first on
              |  _begin_with_care                 a bucket that is new, a step that is sampled
              +--> the hook, driven by the run, which stamps its stages

One link is added to a plain hook's future in steps that are timed, unless it is complete: ``then``
runs before DDP reads the value, passes on the very same tensor, and what it raises fails
``backward()`` properly.  In the others it is looked at when backward ends (``pass_end.py``).
"""

from __future__ import annotations

import copy
import functools
import gc
import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..probes.debug_checks import DebugChecks
from ..probes.device_group import trouble_with
from ..probes.model import ModelProbes
from ..probes.other_sampler import OtherSampler
from ..probes.step_sampler import CallStart, Part, SampledCall, StepSampler
from ..records import AnomalyRecord
from ..records.anomalies import anomaly_kind
from ..records.bucket import TIMED_ONE_IN
from ..staging import group_hooks
from ..staging.backward import current_pass, waits_later
from ..staging.calls import NOT_YET
from ..staging.collectives import Future
from ..staging.devices import refuse_captured_stream
from ..staging.driver import PlainRun, StagedRun, launch_plain
from ..staging.groups import group_of, known_groups, part_of_job
from ..staging.hook import HOOK_SIGNATURE, Hook, StagedHook, hook_name
from ..staging.hook_checks import compiled_reducer
from ..staging.job import current_rank
from ..staging.pass_end import is_timed, watch_pass
from ..staging.ring import ALARMED, RECORDING, Loss, State
from ..staging.slots import BucketSlot, LayoutTracker
from . import hookless
from .hookless import HooklessModel
from .tracer import Tracer, default_tracer

logger = logging.getLogger("hooktrace")


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
        self._local = local
        self._clock = tracer.clock
        self._run_type: type[Any] = PlainRun if self._staged is None else StagedRun
        self._layout = LayoutTracker(hook_name(self), tracer.models.name(model), tracer)
        tracer.models.register_layout(self._layout)
        self.model = self._layout.name
        """The name of the first model that the hook serves."""
        self._group: dist.ProcessGroup | None = None  # the model's, where it is known
        self.notices = HookNotices(tracer, self._layout)

    def __reduce__(self) -> tuple[Callable[..., TracedHook], tuple[Hook, str | None, bool]]:
        return _restore, (self._hook, self._model, self._local)

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedHook:
        hook = copy.deepcopy(self._hook, memo)
        return TracedHook(hook, self._tracer, self._model, self._local)

    def __repr__(self) -> str:
        return f"<traced {self._hook!r}>"

    def learn(self, ddp: DistributedDataParallel) -> None:
        """Take a model's parameter names and process group, before its first backward pass."""
        self._layout.learn_names(ddp.module.named_parameters())
        self._group = ddp.process_group
        self._layout.members = part_of_job(ddp)
        # Under a list of limits (torch 2.15) it would be the largest of them.
        if not getattr(ddp, "bucket_bytes_cap_list", None):
            self._layout.bucket_cap_bytes = getattr(ddp, "bucket_bytes_cap", None)
        self._layout.ddp = weakref.ref(ddp)
        self.notices.watch_passes(ddp)
        if self._staged is None:  # torch tells what it issues
            group_hooks.watch_groups()

    def record_without(self, ddp: DistributedDataParallel) -> None:
        """Record what DDP itself sends for a model, on which the hook is not registered."""
        self.learn(ddp)
        hookless.leave(ddp)
        hookless.models[ddp] = HooklessModel(ddp, self._tracer, self._layout, self.notices)

    def __call__(  # noqa: PLR0912, PLR0915  # a function that is called costs a microsecond here
        self, state: Any, bucket: Any
    ) -> Future:
        """Run the hook for one bucket, as DDP does, and record the call."""
        tracer = self._tracer
        if isinstance(bucket, tuple) or tracer.state is not RECORDING:
            return self._call_untraced(state, bucket)
        sampled: SampledCall | None = None
        is_usual = False
        try:
            # What an attribute holds is called by a name of its own: CPython 3.11 has a fast way
            # for that alone.
            clock = self._clock
            ready = clock()
            # As ``find`` does, without the call: each one costs a microsecond or two, caches cold.
            buffer = bucket.buffer()
            slot = self._layout.by_buffer.get(id(buffer))
            if slot is not None:
                own = slot.buffer
                model, index = slot.model, slot.index
                step = model.step if index > model.last_index else model.step + 1
                is_usual = own() is buffer and step < model.sample_step
            if slot is not None and is_usual:
                # As ``model.enter`` and the run's ``__init__`` do.
                model.step = step
                model.last_index = index
                run = _new(self._run_type)
                run.slot = slot
                run.step = step
                run.ready = ready
                run.launched = run.operation = run.collective = None
                run.done = NOT_YET
                run.clock = clock
                run.on_device = False
                if slot.has_events:
                    run.begin_on_device(tracer.event_pool)
                is_last = slot.is_last
                if is_last:
                    run.watch_backward()
                calls = model.calls
                if calls.number == step:
                    calls.append(run)
                else:
                    model.begin_step(run, tracer.ring)
                    if self._staged is None:
                        self._choose_timing(slot, step)
                slot.last_call = run
        except Exception as error:  # of a clock, a device: this call runs on untraced
            self._give_up(Loss.of_stamps(error), state, bucket, step if is_usual else -1, None)
            return self._hook(state, bucket)
        if not is_usual:
            begun = self._begin_with_care(state, bucket, ready)
            if begun is None:
                return self._hook(state, bucket)
            run, sampled = begun
            is_last = run.slot.is_last
        staged = self._staged
        try:
            if staged is None:
                future = launch_plain(self.__qualname__, self._hook, state, bucket, run)
            else:
                future = staged.launch(state, bucket, run)
        except BaseException:
            if sampled is not None:
                sampled.abandon()
            raise
        finally:
            try:
                if run.launched is None:  # or it was done at once, and is stamped
                    run.launched = clock()
                if is_last:
                    if run.on_device and run.backward_end is not None:
                        run.record_around_backward()
                    if staged is None:
                        calls = run.slot.model.calls
                        if calls.watched_pass is not None:
                            watch_pass(calls)
                        group_hooks.watch_groups()
            except Exception as error:
                run.lose_stamps(error)
        return future if sampled is None else sampled.join(future)

    def _begin_with_care(
        self, state: Any, bucket: Any, ready: int
    ) -> tuple[StagedRun | PlainRun, SampledCall | None] | None:
        """Begin a call of a bucket that is new, or of a step that is sampled.

        Returns ``None`` for one that could not be stamped, and is counted as such.
        """
        tracer = self._tracer
        run: StagedRun | PlainRun | None = None
        sampled: SampledCall | None = None
        step = -1
        try:
            slot = self._layout.find(bucket)
            join_dummy = begins = False
            if slot is None:
                tracer.start()
                slot, join_dummy = self._layout.identify(bucket, state)
                begins = slot.index == 0 and not slot.model.is_planned
                if begins:
                    self._plan(state, slot, bucket)
            model = slot.model
            step = model.enter(slot.index)
            run = slot.last_call = self._run_type(slot, step, ready, self._clock, join_dummy)
            is_sampled = model.sampling is not None and step >= model.sample_step
            if model.sampling is not None and is_sampled:
                sampled = self._sample(model.sampling, run, state, bucket)
            if slot.has_events:
                run.begin_on_device(tracer.event_pool)
            if slot.is_last:
                run.watch_backward()
            if begins or sampled is not None:
                run.stamp("entered")
            if model.calls.number == step:
                model.calls.append(run)
            else:
                model.begin_step(run, tracer.ring)
                if self._staged is None and not is_sampled:
                    self._choose_timing(slot, step)
        except Exception as error:
            if run is not None:
                run.lose_end(error)  # nothing waits for it
            self._give_up(Loss.of_stamps(error), state, bucket, step, sampled)
            return None
        return run, sampled

    @staticmethod
    def _choose_timing(slot: BucketSlot, step: int) -> None:
        """Have a plain hook's step, which has begun, timed, or looked at when its pass ends."""
        model = slot.model
        can_be_left = slot.device_type == "cpu" and current_pass() != -1
        # DDP that waits later would read a wrong result first.
        timed = is_timed(model, step) or waits_later(model.ddp)
        model.calls.untimed = can_be_left and not timed

    def _call_untraced(self, state: Any, bucket: Any) -> Future:
        """Run the hook where no call is recorded, as while paused; all ranks count its steps."""
        tracer = self._tracer
        if isinstance(bucket, tuple):
            raise compiled_reducer(self.__qualname__)
        if tracer.state is ALARMED:
            tracer.raise_alarm()
        self.notices.untraced += 1
        if tracer.state is not State.CLOSED:
            try:
                self._count(state, bucket)
            except Exception as error:
                tracer.push(Loss.of_stamps(error))
        return self._hook(state, bucket)

    def _count(self, state: Any, bucket: Any, step: int = -1) -> None:
        """Count a call that is not recorded, unless it has its ``step``; tell waiting ranks."""
        slot = self._layout.find(bucket) or self._layout.identify(bucket, state)[0]
        model = slot.model
        if not model.is_planned:  # so that the first call that is recorded begins the model
            self._layout.by_buffer.clear()
        step = model.enter(slot.index) if step < 0 else step
        if model.sampling is not None and step >= model.sample_step:
            model.sampling.miss(slot, step, self._tracer)

    def _give_up(
        self, failure: Loss, state: Any, bucket: Any, step: int, sampled: SampledCall | None
    ) -> None:
        """Let go of a call that could not be stamped; ``step``: -1 where it is not counted yet."""
        self._tracer.push(failure)
        self.notices.untraced += 1
        with suppress(Exception):  # it may be this that failed
            if sampled is not None:
                sampled.abandon(failure.why)
            else:
                self._count(state, bucket, step)

    def _sample(
        self, sampling: StepSampler, run: StagedRun | PlainRun, state: Any, bucket: Any
    ) -> SampledCall | None:
        """Look at a call's bucket; return what is to be asked of its result, if anything is."""
        slot, model = run.slot, run.slot.model
        if slot.has_events:
            refuse_captured_stream(slot.device)  # nothing is looked at inside a graph
        run.hook_called = False  # ranks may wait here for each other
        start = CallStart(slot, run.step, run.ready, bucket, state)
        try:
            sampled = sampling.enter(start, self._tracer)
        except BaseException as error:  # as Ctrl-C, which comes while a rank waits
            run.lose_end(error)
            raise
        run.hook_called = True
        model.sample_step = sampling.next_step
        if sampling.asked:  # since this call was looked at
            model.sample_step = 0  # the next call asks again
        if sampled is not None:
            sampled.hold(run)
        return sampled

    def _plan(self, state: Any, slot: BucketSlot, bucket: Any) -> None:
        """Arrange for what is to be looked at on some steps of a new model."""
        slot.model.is_planned = True
        if self._staged is None:
            group_hooks.watch_groups()
        every, debug = self._tracer.error_every, self._tracer.debug
        # Times of a step that is sampled do not count, and those would be all that are timed.
        slot.model.all_timed = bool(every) and TIMED_ONE_IN % every == 0
        parts: list[Part | None] = []
        if every and self._staged is None and group_hooks.available:
            parts.append(OtherSampler(every))
        # Numbers come from a device without waiting for it where it has events.
        if slot.device_type == "cpu" or slot.has_events:
            parts.append(self._comparison(state, slot, bucket) if every else None)
            parts.append(DebugChecks() if debug else None)
        elif every or debug:
            self._say(
                f"buckets of %s are not looked at: torch.accelerator knows no events of a "
                f"{slot.device_type} device, without which the numbers could not be read without "
                "waiting for it",
                slot,
            )
        wanted = [part for part in parts if part is not None]
        if wanted:
            slot.model.sampling = StepSampler(wanted)
            slot.model.sample_step = slot.model.sampling.next_step

    def _comparison(self, state: Any, slot: BucketSlot, bucket: Any) -> Part | None:
        """Offer the other ranks to probe a new model, if that can be done."""
        tracer = self._tracer
        trouble = None
        try:
            group = self._model_group(state)
            if group is None:
                return None
            if slot.device_type != "cpu":
                trouble = trouble_with(group, slot.device)
            if trouble is None:
                return ModelProbes(group, slot, bucket.parameters(), tracer, local=self._local)
        except Exception as error:  # of torch's store or of a state's attributes
            trouble = f"{type(error).__name__}: {error}"
        self._say(f"compression error of %s is not measured: {trouble}; training goes on", slot)
        return None

    def _say(self, what: str, slot: BucketSlot) -> None:
        """Warn of the first of a hook's models of which something is so, in the place of ``%s``."""
        said, known = self._tracer.models.said, f"{self.__qualname__}: {what}"
        if known not in said:
            said.add(known)
            logger.warning("%s", what.replace("%s", slot.model.name, 1))

    def _model_group(self, state: Any) -> dist.ProcessGroup | None:
        """Return the group that the model's gradients are averaged over, ``None`` if unknown."""
        if self._group is not None or not dist.is_initialized():
            return self._group
        named = state if state is None else getattr(state, "process_group", state)
        if isinstance(named, dist.ProcessGroup):
            return named
        # Without a group in its state, a hook means the default one, unless it has its own.
        is_default = self._staged is not None or len(known_groups()) == 1
        return group_of(None) if is_default else None


_new = object.__new__


def _restore(hook: Hook, model: str | None, local: bool) -> TracedHook:
    return TracedHook(hook, default_tracer(), model, local)


_PASSES = 100
"""More than a parameter is used in one backward pass under reentrant checkpointing."""


class HookNotices:
    """Anomalies of one hook as a whole: it is not called, or is known to fail.

    Backward passes do not call it where ``ddp.module(...)`` is called and not ``ddp(...)``, or
    where the forward pass was under ``no_sync()`` and the backward pass was not.
    """

    def __init__(self, tracer: Tracer, layout: LayoutTracker) -> None:
        self._tracer = tracer
        self._layout = layout
        self.untraced = 0
        """Calls that DDP made of the hook, and that are not recorded."""
        self._watching: list[torch.utils.hooks.RemovableHandle] = []

    def watch_passes(self, ddp: DistributedDataParallel) -> None:
        """Record it when backward passes of ``ddp`` do not call the hook; holds neither."""
        parameter = next((p for p in ddp.module.parameters() if p.requires_grad), None)
        if parameter is not None:
            self._watching.append(_PassCounter(ddp, parameter, self).handle)

    def stop_watching(self) -> None:
        """Watch no model any more: another hook is called there now."""
        while self._watching:
            self._watching.pop().remove()

    def count_steps(self) -> int:
        """Return a number that changes when the hook is called in a backward pass."""
        return self.untraced + sum(model.step + 1 for model in self._layout.models)

    def note(self, kind: str, what: str) -> None:
        """Record an anomaly: ``what`` the hook does, or is not called to do."""
        tracer, hook, model = self._tracer, self._layout.hook, self._layout.name
        if not tracer.recording:
            return
        last = self._layout.models[-1] if self._layout.models else None
        step = max(last.first_step, last.step) if last else tracer.first_step
        message = f"hook {hook!r} of {model} {what}; {anomaly_kind(kind).fix}"
        try:
            tracer.start()
            tracer.push(AnomalyRecord(
                kind=kind, model=model, hook=hook, rebuild=last.rebuild if last else 0,
                step=step, bucket=-1, stage="hook", time_ns=tracer.clock(), rank=current_rank(),
                message=message,
            ))  # fmt: skip
        except Exception as error:  # in a backward pass, which it would fail
            tracer.push(Loss.of_stamps(error))


class _PassCounter:
    """Called with a parameter's gradient in each backward pass of ``ddp``.

    Holds neither the model nor the hook.
    """

    def __init__(
        self, ddp: DistributedDataParallel, parameter: torch.nn.Parameter, notices: HookNotices
    ) -> None:
        self.handle = parameter.register_post_accumulate_grad_hook(self)
        # Its parameters outlive it where they are wrapped again.
        weakref.finalize(ddp, self.handle.remove).atexit = False
        self._ddp = weakref.ref(ddp)
        self._notices = weakref.ref(notices)
        self._steps = -1
        self._passes = 0
        self._others: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()

    def __call__(self, parameter: torch.Tensor) -> None:
        ddp, notices = self._ddp(), self._notices()
        if ddp is None or notices is None or not ddp.require_backward_grad_sync:
            return
        steps = notices.count_steps()
        self._passes = self._passes + 1 if steps == self._steps else 0
        self._steps = steps
        if self._passes < _PASSES:
            return
        self._others = self._others or _others_with(parameter, ddp)
        if self._others:  # it may be one of them that synchronises
            self._passes = 0
            return
        self.handle.remove()
        what = f"was not called in {_PASSES} backward passes in which DDP was to synchronise, so "
        notices.note("not_synchronised", what + "the ranks train apart")


def _others_with(
    parameter: torch.Tensor, ddp: DistributedDataParallel
) -> weakref.WeakSet[DistributedDataParallel]:
    """Return the other DDP objects of a parameter; looks at all objects, so only before a claim."""
    found = [o for o in gc.get_objects() if issubclass(type(o), DistributedDataParallel)]
    found = [o for o in found if o is not ddp and any(p is parameter for p in o.parameters())]
    return weakref.WeakSet(found)
