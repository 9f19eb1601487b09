"""Hooks of one model that take turns in a job which ``hooktrace tune`` has started.

    DDP made, its parameters are the plan's --> Turns
      forward pass, main thread --> stamp; a turn is over: --Dispatcher.change--> the next hook
      enough passes, on all ranks the same --> what was seen, to a file --> SystemExit

Each hook keeps a state and a tracer of its own over all its turns.  A plan without a model has all
models looked at and nothing changed: no hook of ours, so that it tells what the job takes as it is.
A step is a forward pass whose gradients will be averaged.  On a device its begin is an event there.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import statistics
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tracing.redirected import own_exporters
from .tuned import OWN, Plan, is_enough, plan, shapes_key, trained

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from ..tracing.traced_hook import Hook
    from ..tracing.tracer import Tracer


class Turns:
    """A model of a job that is tuned: its steps, and whose turn each is."""

    def __init__(self, ddp: DistributedDataParallel, wanted: Plan, number: int) -> None:
        import torch
        import torch.distributed as dist

        self._plan, self._model, self._number = wanted, type(ddp.module).__name__, number
        trainable = [p for p in ddp.module.parameters() if p.requires_grad]
        self._device: torch.device = trainable[0].device
        self.size = sum(p.nbytes for p in trainable)
        self._pid = os.getpid()
        self._begins: list[int] = []
        self._events: list[Any] = []
        self._turns: list[tuple[str, int]] = []
        self._refused: dict[str, str] = {}
        self._tracers: dict[str, Tracer] = {}
        self._ready: dict[str, tuple[Hook, Any]] = {}
        self._peaks: dict[str, int] = {}
        self._change: Callable[[Hook, Any], None] | None = None
        self._said: dict[str, Any] = {
            "model": self._model, "shapes": shapes_key(trained(ddp.module)),
            "bytes": self.size, "cap": ddp.bucket_bytes_cap / 2**20, "hook": None, "effects": False,
            "rank": dist.get_rank(), "ranks": dist.get_world_size(),
        }  # fmt: skip
        self._is_written = False
        atexit.register(self._write)

    @property
    def changes(self) -> bool:
        """Whether the model's hooks take turns, and it is not only looked at."""
        return self._plan.shapes is not None

    def take(
        self, ddp: DistributedDataParallel, hook: Hook, state: Any, change: Callable[..., None]
    ) -> tuple[Hook, Any]:
        """Have the hooks of the plan take turns with the model's own; returns what goes first.

        ``change``: called with the hook and the state that take the model's buckets from then on.
        """
        from ..hooks.candidates import candidates

        for tracer in self._tracers.values():  # of a hook that the script has replaced
            tracer.close()
        self._tracers, self._ready, self._turns = {}, {}, []
        hook = getattr(hook, "__wrapped__", hook) if getattr(hook, "is_traced", False) else hook
        self._said["hook"] = getattr(hook, "__qualname__", type(hook).__qualname__)
        self._said["effects"] = effects = _does_more(hook)
        self._add(OWN, ddp, hook, state)
        for one in candidates():
            if one.label in self._plan.hooks and not effects:
                try:
                    one.hook.check_model(ddp.module)
                    # PowerSGD at work from its second step on.
                    made = one.make_state(ddp.process_group, **one.entry.check_options)
                    one.hook.check_state(made)
                except (TypeError, ValueError) as error:
                    self._refused[one.label] = str(error)
                else:
                    self._add(one.label, ddp, one.hook, made)
        self._change = change
        self._begins.clear()  # what came before, in a script that registers late, is not counted
        self._events.clear()
        return self._ready[OWN]

    def _add(self, label: str, ddp: DistributedDataParallel, hook: Hook, state: Any) -> None:
        from .. import exporters
        from ..tracing.trace import trace
        from ..tracing.tracer import Tracer

        kept = Path(self._plan.folder, label.replace(" ", "-"))
        files = [exporters.RecordFileExporter(kept)] if self._plan.keep else []
        # Probes come in the first step of every second turn, which does not count.
        with own_exporters():
            tracer = Tracer(files, error_every=2 * self._plan.turn)
        traced = trace(hook, model=self._model, tracer=tracer)
        traced.learn(ddp)
        traced.retire()  # it is not called for a round, and that is no fault of the script's
        self._tracers[label], self._ready[label] = tracer, (traced, state)

    def before_forward(self, ddp: Any) -> None:
        """Take note of a step that begins, if one does; end a turn, or the job."""
        import torch

        from ..capture.device_events import current_stream, has_events, new_event

        if not (torch.is_grad_enabled() and ddp.require_backward_grad_sync):
            return
        step = len(self._begins)
        self._begins.append(time.perf_counter_ns())
        if has_events(self._device):
            event = new_event(self._device)
            event.record(current_stream(self._device))
            self._events.append(event)
        if step % self._plan.turn:
            return
        seconds = (self._begins[-1] - self._begins[0]) / 1e9
        if self.size == max(_sizes) and is_enough(self._number, step, seconds, self._plan):
            self._leave()
        self._next_turn(step)

    def _next_turn(self, step: int) -> None:
        # DDP settles its buckets in the first turn, which is no one's.
        turn = step // self._plan.turn
        label = self._plan.order([*self._ready], turn - 1) if turn and self._change else OWN
        self._note_peak()
        self._turns.append((label, step))
        if self._change is not None:
            self._change(*self._ready[label])

    def _note_peak(self) -> None:
        """Take note of the most memory in the turn that is over, where the device counts it."""
        import torch

        if self._device.type == "cuda":
            if len(self._turns) > 1:
                label, peak = self._turns[-1][0], torch.cuda.max_memory_allocated(self._device)
                self._peaks[label] = max(peak, self._peaks.get(label, 0))
            torch.cuda.reset_peak_memory_stats(self._device)

    def _leave(self) -> None:
        """End the job as a script ends itself: what it has to close, it closes."""
        import torch.distributed as dist

        self._write()
        with suppress(RuntimeError):
            dist.barrier()  # or rank 0 takes the store away from those who still ask it
        raise SystemExit(0)

    def _write(self) -> None:
        """Write what was seen, once: at the end of the plan, or of a script that ends before."""
        if self._is_written or not self._begins or os.getpid() != self._pid:
            return
        self._is_written = True
        self._note_peak()
        rank = self._said["rank"]
        seen = {
            **self._said, "last": self._plan.is_last, "follows": self._plan.follows,
            "begins": self._at(), "turns": self._turns, "refused": self._refused,
            "peaks": self._peaks, "hooks": {k: _seen_by(t) for k, t in self._tracers.items()},
        }  # fmt: skip
        path = Path(
            self._plan.folder, f"{self._plan.token}-{rank:05d}-{os.getpid()}-{id(self)}.json"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = path.with_suffix(".part")
        unnamed.write_text(json.dumps(seen), "utf-8")
        unnamed.rename(path)

    def _at(self) -> list[int]:
        """Return when each step began, ns: by the device, where there is one."""
        if not self._events:
            return self._begins
        self._events[-1].synchronize()
        spans = [a.elapsed_time(b) for a, b in pairwise(self._events)]  # of few digits each
        return [0, *(int(ms * 1e6) for ms in accumulate(spans))]


_DO_MORE = ("optimizer_overlap_hooks", "ddp_zero_hook", "mixed_precision_hooks")
"""Modules of torch whose hooks step an optimizer, or cast parameters."""


def _does_more(hook: Hook) -> bool:
    """Return whether a hook is known to do more than to average."""
    where = str(getattr(hook, "__module__", ""))
    return getattr(hook, "has_effects", False) or where.endswith(_DO_MORE)


def _seen_by(tracer: Tracer) -> dict[str, float | None]:
    """Return medians of a hook's steps, and the largest error of its buckets, relative L2."""
    tracer.flush()
    steps = [s for s in tracer.steps() if s.complete and not s.warmup and not s.probed]
    exposed = [s.exposed_ns for s in steps if s.exposed_ns is not None]
    sent = [s.wire_bytes for s in steps if s.wire_bytes is not None]
    errors = [b.error.relative_l2 for b in tracer.buckets() if b.error is not None]
    known = [error for error in errors if error is not None]
    return {
        "exposed_ns": statistics.median(exposed) if exposed else None,
        "wire_bytes": statistics.median(sent) if sent else None,
        "error": max(known, default=None),
    }


_turns: weakref.WeakKeyDictionary[Any, Turns] = weakref.WeakKeyDictionary()
"""By reducer: on the model itself they would go into its copies and checkpoints."""


def watch(ddp: DistributedDataParallel) -> Turns | None:
    """Return the turns of a model that was just made; ``None`` of one that is left as it is.

    So is one that a part of the ranks share: the others do not come to where its turns end.
    """
    import torch.distributed as dist

    wanted = plan()
    if wanted is None or not (wanted.shapes is None or wanted.is_of(ddp.module)):
        return None
    if ddp.process_group.size() != dist.get_world_size():
        return None
    found = _turns[ddp.reducer] = Turns(ddp, wanted, len(_sizes))
    _sizes.append(found.size)
    return found


_sizes: list[int] = []
"""Bytes of the models that were made so far, the same on all ranks: the largest one is tuned."""


def patch(ddp: Any) -> None:
    """Have models that take turns told of each forward pass."""
    original = ddp.forward

    @functools.wraps(original)
    def forward(self: Any, *inputs: Any, **options: Any) -> Any:
        turns = _turns.get(self.reducer)
        if turns is not None:
            turns.before_forward(self)
        return original(self, *inputs, **options)

    ddp.forward = forward
