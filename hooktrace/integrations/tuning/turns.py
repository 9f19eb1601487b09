"""The steps of one model in a job that is tuned, and whose turn each is.

    rank 0's environment --Plan--> each rank
    a forward pass begins, main thread --> stamp; a turn is over: rank 0 says whose is the next one
      --change--> its hook      --or that it is the end--> what was seen, to a file --> SystemExit
    steps that a hook has taken --Part--> record files, a folder a label

A step is a forward pass whose gradients will be averaged.  On a device its begin is an event there.

Successive halving (Jamieson and Talwalkar, AISTATS 2016): after FEWEST rounds, twice as many, ...
the slower half leaves.  Only what was slower than the fastest in each round so far does: by chance
alone that happens once in 2^FEWEST times.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, count, pairwise
from multiprocessing.util import Finalize
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgspec

from ...exporters.record_file import RecordFileExporter
from . import MEASURED, WHERE

if TYPE_CHECKING:
    from torch import nn

    from ...records import Batch

OWN = "as it is"
"""The label of what the job has: its script's hook, or torch's own average."""
TURN, LEFT_OUT = 8, 3
"""Steps of a turn; those at its begin that do not count: caches, warm starts."""
FEWEST, SURVIVORS = 5, 3
"""Rounds below which nothing is said of a hook; hooks, beside the job's own, that never leave."""
_STORE = "hooktrace/tune"
"""What begins the keys of the job's store."""

Turn = tuple[str, int]
"""Whose it is, and its first step."""
Times = Mapping[str, Sequence[float]]


class Plan(msgspec.Struct, frozen=True):
    """What is asked of one start of a job.

    - ``rounds``, ``seconds``: the job ends once it has made so many, in so much time or more.
    - ``limit_s``: it ends after so many seconds of training, whatever it has made.
    - ``model``: the number of the one that is tuned, ``None`` to look only.
    - ``hooks``: labels of what takes turns with ``OWN``.
    - ``cap``: the ``bucket_cap_mb`` of all DDP models, ``None`` for their own.
    - ``is_last``: the tuning is over then.
    """

    rounds: int
    seconds: float
    limit_s: float
    model: int | None = None
    hooks: Sequence[str] = ()
    cap: float | None = None
    is_last: bool = False


def plan() -> Plan:
    """Return what is asked of this job: with a process group, of rank 0."""
    import torch.distributed as dist

    from ...staging.job import job_store

    asked = os.environ[MEASURED]
    if dist.is_initialized():  # else DDP says itself what is missing
        asked = _of_rank_0("plan", lambda: os.environ[MEASURED], job_store(_STORE))
    return msgspec.json.decode(asked, type=Plan)


def _of_rank_0(what: str, said: Callable[[], str], store: Any) -> str:
    """Return what rank 0 says; ``said`` is called there only.  All ranks ask for the same."""
    import torch.distributed as dist

    if dist.get_rank() == 0:
        store.set(what, said())
    return str(store.get(what).decode())


def turn_times(begins: Sequence[int], turns: Sequence[Turn]) -> dict[str, list[float]]:
    """Return the mean step of each turn that is over, ns, by label.

    In the first turn, which nobody has, DDP settles its buckets.
    """
    found: dict[str, list[float]] = {}
    for label, first in turns[1:]:
        if first + TURN < len(begins):
            spent = begins[first + TURN] - begins[first + LEFT_OUT]
            found.setdefault(label, []).append(spent / (TURN - LEFT_OUT))
    return found


def rounds(
    labels: Sequence[str], plan: Plan, seconds: Callable[[], float], times: Callable[[], Times]
) -> Iterator[str]:
    """Yield whose turn is next; ``seconds`` since the first step, ``times`` so far."""
    alive, halved_at = [*labels], FEWEST
    draw = random.Random()  # not the script's own
    for over in count():
        if over >= plan.rounds and seconds() >= plan.seconds:
            return
        if over == halved_at:
            halved_at *= 2
            alive = _halved(alive, times())
        for label in draw.sample(alive, len(alive)):
            if seconds() >= plan.limit_s:
                return
            yield label


def _halved(alive: Sequence[str], times: Times) -> list[str]:
    others = sorted((one for one in alive if one != OWN), key=lambda one: median(times[one]))
    slower = others[max(SURVIVORS, (len(others) + 1) // 2) :]
    best = times[others[0]] if slower else ()
    return [
        one
        for one in alive
        if one not in slower or any(a <= b for a, b in zip(times[one], best, strict=True))
    ]


class Turns:
    """A model of a job that is tuned.  ``said``: what its file tells of it besides what is here."""

    made: ClassVar[int] = 0
    """Models so far, the same on all ranks: a model's number is how many were made before."""
    main: ClassVar[Turns | None] = None
    """Whose steps end the job: of those that were called the largest, the latest of some alike."""

    def __init__(self, module: nn.Module, number: int, **said: Any) -> None:
        import torch.distributed as dist

        from ...staging.job import job_store

        sizes = [p.numel() * p.element_size() for p in module.parameters() if p.requires_grad]
        self.plan, self.order = plan(), (sum(sizes), number)
        self._device = next(module.parameters()).device
        self._begins: list[int] = []
        self._events: list[Any] = []
        self._is_over = False
        # Held from now on: the script may destroy its group before all is said.
        self._store = job_store(f"{_STORE}/{number}")
        self.seen: dict[str, Any] = said | {
            "number": number, "sizes": sizes, "rank": dist.get_rank(),
            "ranks": dist.get_world_size(), "last": self.plan.is_last, "refused": {}, "peaks": {},
        }  # fmt: skip
        self.begin([OWN], lambda _: None)

    def begin(self, labels: Iterable[str], change: Callable[[str], object]) -> None:
        """Begin with what the job has; ``change`` gives gradients to another label's hook.

        Steps before, in a script that registers late, do not count.
        """
        self._change, self._first, self._turns = change, len(self._begins), list[Turn]()
        self._next = rounds(
            [*labels], self.plan, lambda: (self._begins[-1] - self._begins[self._first]) / 1e9,
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
        if (step - self._first) % TURN:
            return
        if Turns.main is None or Turns.main.order < self.order:
            Turns.main = self
            # Children of multiprocessing run no functions of atexit.
            Finalize(None, self._write, exitpriority=1)
        label = OWN
        if self._turns and Turns.main is self:
            self._note_peak()
            label = _of_rank_0(str(step), lambda: next(self._next, ""), self._store)
        if not label:
            self._leave()
        self._turns.append((label, step))
        self._change(label)

    def _note_peak(self) -> None:
        """Note the memory that the last turn took at most, where the device tells it."""
        import torch

        if self._device.type == "cpu":
            return
        label, first = self._turns[-1]
        if first > self._first:  # DDP makes new buckets in the first one
            most = torch.accelerator.max_memory_allocated(self._device)
            self.seen["peaks"][label] = max(self.seen["peaks"].get(label, 0), most)
        torch.accelerator.reset_peak_memory_stats(self._device)

    def _leave(self) -> NoReturn:
        """End the job as a script ends itself: what it has to close, it closes.

        A script that goes on all the same is ended when the next turn would begin.
        """
        import torch.distributed as dist

        self._write()
        with suppress(RuntimeError):
            dist.barrier()  # or rank 0 takes the store away from those who still ask it
        if self._is_over:
            os._exit(0)
        self._is_over = True
        raise SystemExit(0)

    def _write(self) -> None:
        """Write what was seen: at the end of the plan, or of a script that ends before."""
        if Turns.main is self:
            seen = {"begins": self._at(), "turns": self._turns}
            _write(f"rank{self.seen['rank']:05d}", self.seen | seen)

    def _at(self) -> list[int]:
        """Return when each step began, ns: by the device, where there is one."""
        if not self._events:
            return self._begins
        self._events[-1].synchronize()
        spans = [a.elapsed_time(b) for a, b in pairwise(self._events)]  # of few digits each
        return [0, *(int(ms * 1e6) for ms in accumulate(spans))]


def folder_of(start: Path, label: str) -> Path:
    """Return where the record files of a start's hook are."""
    return start / label.replace(" ", "-")


class Part(RecordFileExporter):
    """Writes record files of one label: its steps, by ``label_of`` each, and all other records."""

    measures_the_job = True
    """So that it is used where the script's own exporters are not (``tracing/export.py``)."""

    def __init__(self, label: str, label_of: Callable[[int], str] | None = None) -> None:
        super().__init__(folder_of(Path(os.environ[WHERE]).parent, label))
        self._is_own = lambda step: label_of is None or label_of(step) == label

    def export(self, batch: Batch) -> None:
        """Append what is this label's."""
        steps = tuple(one for one in batch.steps if self._is_own(one[0].step))
        super().export(msgspec.structs.replace(batch, steps=steps))


def _write(name: str, seen: dict[str, Any]) -> None:
    """Write a file for ``hooktrace tune``."""
    path = Path(f"{os.environ[WHERE]}-{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(seen))


def refuse(why: str) -> NoReturn:
    """End a job that cannot be tuned."""
    _write("refused", {"why_not": why})
    raise SystemExit(0)
