"""The steps of one model in a job that is tuned, and whose turn each is.

    a forward pass begins, main thread --> stamp; a turn is over: --change--> the next one's hook
    rank 0 says that it is the end --> what was seen, to a file --> SystemExit

A step is a forward pass whose gradients will be averaged.  On a device its begin is an event there.
``hooks.py`` has what takes turns in a model under DDP, and in one under ``fully_shard``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import accumulate, pairwise
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from .plan import OWN, STORE, TURN, Plan, Turn, of_rank_0, rounds, turn_times

if TYPE_CHECKING:
    from torch import nn

_WAIT = timedelta(seconds=5)
"""For what other ranks say of a failure; they come to their ends by it at about the same time."""


class Turns:
    """A model of a job that is tuned.

    ``said``: what its file tells of it besides what is known here.
    """

    sizes: ClassVar[list[int]] = []
    """Bytes of the models so far, the same on all ranks: a model's place is its number."""

    def __init__(self, module: nn.Module, wanted: Plan, **said: Any) -> None:
        import torch
        import torch.distributed as dist

        from ...staging.job import job_store

        trainable = [p for p in module.parameters() if p.requires_grad]
        number, size = len(self.sizes), sum(p.numel() * p.element_size() for p in trainable)
        self.sizes.append(size)
        self.plan = wanted
        self.is_tuned = wanted.model == number
        self.is_asked = self.is_tuned or wanted.model is None
        self.is_called = False
        """Whether a forward pass that is a step is under way."""
        self._device: torch.device = trainable[0].device
        self._begins: list[int] = []
        self._events: list[Any] = []
        self._turns: list[Turn] = []
        # Held from now on: the script may destroy its group before all is said.
        self._store = job_store(f"{STORE}/{number}")
        self._began = -1
        """How often it began anew; the job's store remembers what rank 0 said before."""
        self._seen: dict[str, Any] = said | {
            "number": number, "bytes": size, "rank": dist.get_rank(),
            "ranks": dist.get_world_size(), "last": wanted.is_last, "follows": wanted.follows,
            "hook": None, "effects": False, "refused": {},
        }  # fmt: skip
        self._is_written = False
        self._begin([OWN])
        # Children of multiprocessing run no functions of atexit.
        Finalize(None, self._write, exitpriority=1)

    def _change(self, label: str) -> None:
        """Give the model's gradients to another hook, from the step that begins on."""

    def _told(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each hook, by label."""
        return {}

    def _begin(self, labels: Iterable[str]) -> None:
        """Begin: what came before, in a script that registers late, is not counted.

        A hook that the first forward pass registers has the step that is under way, as its tracer
        counts it: probes then come in the first step of a turn.
        """
        self._began += 1
        before = len(self._begins) - self.is_called
        del self._begins[:before], self._events[:before]
        self._turns = [(OWN, 0)] if self.is_called else []
        self._order = rounds(
            [*labels], self.plan, lambda: (self._begins[-1] - self._begins[0]) / 1e9,
            lambda: turn_times(self._at(), self._turns),
        )  # fmt: skip

    def step(self) -> None:
        """Take note of a step that begins; end a turn, or the job."""
        from ...staging.devices import current_stream, has_events, new_event

        step = len(self._begins)
        self._begins.append(time.perf_counter_ns())
        if has_events(self._device):
            self._events.append(new_event(self._device))
            self._events[-1].record(current_stream(self._device))
        if step % TURN:
            return
        label = OWN
        # Of several models that are only looked at, the largest one ends the job.
        if step > 0 and (self.is_tuned or self._seen["bytes"] == max(self.sizes)):
            asked = f"{self._began}/{step}"
            label = of_rank_0(asked, lambda: next(self._order, ""), self._store)
        if not label:
            self._leave()
        self._turns.append((label, step))
        self._change(label)

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
        told = self._told()
        failed = next(((label, *x["failed"]) for label, x in told.items() if x["failed"]), None)
        seen = self._seen | {
            "begins": self._at(), "turns": self._turns, "hooks": told,
            "failed": to_blame(failed, self._seen["ranks"], self._store),
        }  # fmt: skip
        write(self.plan, f"{self._seen['rank']:05d}-{os.getpid()}-{self._seen['number']}", seen)

    def _at(self) -> list[int]:
        """Return when each step began, ns: by the device, where there is one."""
        if not self._events:
            return self._begins
        self._events[-1].synchronize()
        spans = [a.elapsed_time(b) for a, b in pairwise(self._events)]  # of few digits each
        return [0, *(int(ms * 1e6) for ms in accumulate(spans))]


def write(wanted: Plan, name: str, seen: Mapping[str, Any]) -> None:
    """Write a file for ``hooktrace tune``, which finds it whole or not at all."""
    path = Path(f"{wanted.where}-{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    unnamed = path.with_suffix(".part")
    unnamed.write_text(json.dumps(seen), "utf-8")
    unnamed.rename(path)


def to_blame(failed: tuple[Any, ...] | None, ranks: int, store: Any) -> dict[str, str]:
    """Return the hook that a job has failed by, and why.

    ``failed``: of this rank, the first hook that failed, whether in a collective, and what it
    raised.  Collectives fail on all others where one rank is gone, whoever's turn it is: a hook is
    to blame where it fails outside of one, or on all ranks alike.  Who knows says it in the store.
    """
    from ...staging.job import first_word

    label, in_collective, why = failed or (OWN, False, "")
    found = {} if label == OWN else {label: f"it failed: {why}"}
    with suppress(RuntimeError):  # the store is gone, or nobody says anything
        if in_collective and found and store.add(f"alike/{label}/{why}", 1) < ranks:
            store.wait(["failed"], _WAIT)
        return dict(json.loads(first_word(store, "failed", json.dumps(found))))
    return {} if in_collective else found
