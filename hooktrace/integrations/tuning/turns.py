"""The steps of one model in a job that is tuned, and whose turn each is.

      a forward pass begins, main thread --> stamp; a turn is over: --Hooks.change--> the next one
      rank 0 says that it is the end --> what was seen, to a file --> SystemExit

A step is a forward pass whose gradients will be averaged.  On a device its begin is an event there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, pairwise
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .plan import Plan, of_rank_0, shapes_key, trained
from .rounds import OWN, Rounds, Turn, turn_times

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ...tracing.traced_hook import Hook
    from .hooks import Hooks


class Turns:
    """A model of a job that is tuned.

    ``kind``: ``ddp`` or ``fsdp2``; ``cap``: of DDP, its ``bucket_cap_mb``.  ``number``: among the
    models that were made, the same on all ranks.  ``size``: bytes of its gradients.
    """

    def __init__(
        self,
        module: nn.Module,
        wanted: Plan,
        number: int,
        *,
        kind: str,
        name: str,
        cap: float | None = None,
    ) -> None:
        import torch
        import torch.distributed as dist

        trainable = [p for p in module.parameters() if p.requires_grad]
        self.plan, self._number = wanted, number
        self._device: torch.device = trainable[0].device
        self.size = sum(p.numel() * p.element_size() for p in trainable)
        self._begins: list[int] = []
        self._events: list[Any] = []
        self._turns: list[Turn] = []
        self._peaks: dict[str, int] = {}
        self._hooks: Hooks | None = None
        self._beginnings = 0
        """How often it began; the job's store remembers what rank 0 said of steps before."""
        self._rounds = Rounds([OWN], wanted)
        self._said: dict[str, Any] = {
            "model": name, "kind": kind, "shapes": shapes_key(trained(module)),
            "bytes": self.size, "cap": cap, "rank": dist.get_rank(), "ranks": dist.get_world_size(),
            "here": int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())),
        }  # fmt: skip
        self._is_written = False
        self.is_called = False
        """Whether a forward pass that is a step is under way."""
        # Children of multiprocessing run no functions of atexit.
        Finalize(None, self._write, exitpriority=1)

    @property
    def changes(self) -> bool:
        """Whether the model's hooks take turns, and it is not only looked at."""
        return self.plan.shapes is not None

    def take(
        self, ddp: DistributedDataParallel, hook: Hook, state: Any, change: Callable[..., None]
    ) -> tuple[Hook, Any]:
        """Have the plan's hooks take turns with a DDP model's own; returns what goes first.

        ``change``: called with the hook and the state that take the model's buckets from then on.
        """
        from .hooks import DDPHooks

        if self._hooks is not None:  # the script has replaced its hook
            self._hooks.close()
        hooks = DDPHooks(ddp, (hook, state), change, self.plan)
        self.have(hooks)
        return hooks.first

    def have(self, hooks: Hooks) -> None:
        """Begin: what came before, in a script that registers late, is not counted.

        A hook that the first forward pass registers has the step that is under way, as its tracer
        counts it: probes then come in the first step of a turn.
        """
        self._hooks = hooks
        self._beginnings += 1
        self._rounds = Rounds(hooks.labels, self.plan)
        before = len(self._begins) - self.is_called
        del self._begins[:before], self._events[:before]
        self._turns[:] = [(OWN, 0)] if self.is_called else []

    def step(self, largest: int) -> None:
        """Take note of a step that begins; end a turn, or the job.

        ``largest``: the size of the largest model so far, which is the one that ends the job.
        """
        from ...staging.devices import current_stream, has_events, new_event

        step = len(self._begins)
        self._begins.append(time.perf_counter_ns())
        if has_events(self._device):
            event = new_event(self._device)
            event.record(current_stream(self._device))
            self._events.append(event)
        if step % self.plan.turn == 0:
            label = OWN if step == 0 or self.size < largest else self._next(step)
            if not label:
                self._leave()
            self._note_peak()
            self._turns.append((label, step))
            if self._hooks is not None:
                self._hooks.change(label)

    def _next(self, step: int) -> str:
        seconds = (self._begins[-1] - self._begins[0]) / 1e9
        return of_rank_0(
            f"{self._number}/{self._beginnings}/{step}",
            lambda: self._rounds.next(
                seconds, lambda: turn_times(self._at(), self._turns, self.plan.turn)
            ),
        )

    def _note_peak(self) -> None:
        """Take note of the most memory in the turn that is over, where the device counts it."""
        import torch

        if self._device.type == "cuda":
            if len(self._turns) > 1:
                label, peak = self._turns[-1][0], torch.cuda.max_memory_allocated(self._device)
                self._peaks[label] = max(peak, self._peaks.get(label, 0))
            torch.cuda.reset_peak_memory_stats(self._device)

    def _leave(self) -> NoReturn:
        """End the job as a script ends itself: what it has to close, it closes.

        A script that goes on all the same is ended when the next turn would begin.
        """
        import torch.distributed as dist

        is_asked = self._is_written
        self._write()
        with suppress(RuntimeError):
            dist.barrier()  # or rank 0 takes the store away from those who still ask it
        if is_asked:
            os._exit(0)
        raise SystemExit(0)

    def _write(self) -> None:
        """Write what was seen, once: at the end of the plan, or of a script that ends before."""
        if self._is_written or not self._begins:
            return
        self._is_written = True
        self._note_peak()
        hooks = self._hooks
        seen = {
            **self._said, "last": self.plan.is_last, "follows": self.plan.follows,
            "begins": self._at(), "turns": self._turns, "peaks": self._peaks,
            "hook": hooks and hooks.own, "effects": bool(hooks and hooks.effects),
            "refused": hooks.refused if hooks else {}, "hooks": hooks.told() if hooks else {},
        }  # fmt: skip
        name = f"{self.plan.token}-{self._said['rank']:05d}-{os.getpid()}-{id(self)}.json"
        path = Path(self.plan.folder, name)
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
