"""The steps of one model in a job that is tuned, and whose turn each is.

    a forward pass begins, main thread --> stamp; a turn is over: --change--> the next one's hook
    rank 0 says that it is the end --> what was seen, to a file --> SystemExit
    steps that a hook has taken --Files--> record files, a folder a label

A step is a forward pass whose gradients will be averaged.  On a device its begin is an event there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import accumulate, pairwise
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from msgspec.structs import replace

from ...exporters.record_file import RecordFileExporter
from .plan import OWN, STORE, TURN, Turn, folder_of, of_rank_0, own_plan, plan, rounds, turn_times

if TYPE_CHECKING:
    from torch import nn

    from ...records import Batch
    from ...tracing.tracer import Tracer

_WAIT = timedelta(seconds=5)
"""For what other ranks say of a failure; they come to their ends by it at about the same time."""


class Turns:
    """A model of a job that is tuned.  ``said``: what its file tells of it besides what is here."""

    made: ClassVar[int] = 0
    """Models so far, the same on all ranks: a model's number is how many were made before."""
    largest: ClassVar[int] = 0
    """Bytes of the largest model that has made a step: it ends a job that is only looked at."""

    def __init__(self, module: nn.Module, number: int, **said: Any) -> None:
        import torch.distributed as dist

        from ...staging.job import job_store

        trainable = [p for p in module.parameters() if p.requires_grad]
        self.plan = plan()
        self.is_called = False
        """Whether a forward pass that is a step is under way."""
        self._device = next(module.parameters()).device
        self._begins: list[int] = []
        self._events: list[Any] = []
        self.tracers: list[tuple[Tracer, Callable[[int], str]]] = []
        """With whose each of its steps is."""
        # Held from now on: the script may destroy its group before all is said.
        self._store = job_store(f"{STORE}/{number}")
        self.seen: dict[str, Any] = said | {
            "number": number, "bytes": sum(p.numel() * p.element_size() for p in trainable),
            "rank": dist.get_rank(), "ranks": dist.get_world_size(), "last": self.plan.is_last,
            "follows": self.plan.follows, "refused": {},
        }  # fmt: skip
        self._is_written = False
        self.begin([OWN], lambda _: None)
        # Children of multiprocessing run no functions of atexit.
        Finalize(None, self._write, exitpriority=1)

    def begin(self, labels: Iterable[str], change: Callable[[str], object]) -> None:
        """Begin with what the job has; ``change`` gives gradients to another label's hook.

        Steps before, in a script that registers late, do not count.  A hook that the first forward
        pass registers has the step under way, as its tracer counts it: probes then come in the
        first step of a turn.
        """
        self._change, self._first = change, len(self._begins) - self.is_called
        self._turns: list[Turn] = [(OWN, self._first)] if self.is_called else []
        self._order = rounds(
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
        Turns.largest = max(Turns.largest, self.seen["bytes"])
        label = OWN
        if step > self._first and self.seen["bytes"] == Turns.largest:
            label = of_rank_0(str(step), lambda: next(self._order, ""), self._store)
        if not label:
            self._leave()
        self._turns.append((label, step))
        self._change(label)

    def tracer(self, labels: Sequence[str], label_of: Callable[[int], str]) -> Tracer:
        """Return a tracer of what labels do; ``label_of``: whose one of its steps is."""
        from ...tracing.tracer import Tracer

        # Probes come in the first step of each turn, which does not count.
        files = Files(Path(self.plan.where).parent, labels, label_of)
        tracer = Tracer([files], error_every=TURN)
        self.tracers.append((tracer, label_of))
        return tracer

    def _leave(self) -> NoReturn:
        """End the job as a script ends itself: what it has to close, it closes.

        A script that goes on all the same is ended when the next turn would begin.
        """
        import torch.distributed as dist

        goes_on = self._is_written
        self._write()
        with suppress(RuntimeError):
            dist.barrier()  # or rank 0 takes the store away from those who still ask it
        if goes_on:
            os._exit(0)
        raise SystemExit(0)

    def _write(self) -> None:
        """Write what was seen, once: at the end of the plan, or of a script that ends before."""
        if self._is_written or not self._begins:
            return
        self._is_written = True
        rank, ranks, number = (self.seen[name] for name in ("rank", "ranks", "number"))
        failed = to_blame(self._failure(), ranks, self._store)
        seen = self.seen | {"begins": self._at(), "turns": self._turns, "failed": failed}
        write(f"{rank:05d}-{os.getpid()}-{number}", seen)

    def _failure(self) -> tuple[str, bool, str] | None:
        """Return whose hook failed here, whether in a collective, and why."""
        for tracer, label_of in self.tracers:
            tracer.flush()
            stages = [x.stage for x in tracer.anomalies() if x.kind == "hook_exception"]
            for bucket in tracer.buckets():
                if bucket.exception is not None:
                    in_collective = stages[:1] == ["wire"]
                    return label_of(bucket.step), in_collective, bucket.exception
        return None

    def _at(self) -> list[int]:
        """Return when each step began, ns: by the device, where there is one."""
        if not self._events:
            return self._begins
        self._events[-1].synchronize()
        spans = [a.elapsed_time(b) for a, b in pairwise(self._events)]  # of few digits each
        return [0, *(int(ms * 1e6) for ms in accumulate(spans))]


class Files:
    """An exporter that writes the steps of each label into record files of its own."""

    measures_the_job = True
    """So that it is used where the script's own exporters are not (``tracing/export.py``)."""

    def __init__(self, start: Path, labels: Sequence[str], label_of: Callable[[int], str]) -> None:
        self._label_of = label_of
        self._files = {one: RecordFileExporter(folder_of(start, one)) for one in labels}

    def export(self, batch: Batch) -> None:
        """Write each step where it belongs, and all other records everywhere."""
        for label, file in self._files.items():
            steps = [one for one in batch.steps if self._label_of(one[0].step) == label]
            file.export(replace(batch, steps=tuple(steps)))

    def close(self) -> None:
        """Write out what the files hold."""
        for file in self._files.values():
            file.close()


def write(name: str, seen: Mapping[str, Any]) -> None:
    """Write a file for ``hooktrace tune``, which finds it whole or not at all."""
    path = Path(f"{own_plan().where}-{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    unnamed = path.with_suffix(".part")
    unnamed.write_text(json.dumps(seen), "utf-8")
    unnamed.rename(path)


def refuse(why: str) -> NoReturn:
    """End a job that cannot be tuned."""
    write(f"refused-{os.getpid()}", {"why_not": why})
    raise SystemExit(0)


def to_blame(failed: tuple[str, bool, str] | None, ranks: int, store: Any) -> dict[str, str]:
    """Return the hook that a job has failed by, and why.

    ``failed``: of this rank, whose hook, whether a collective failed, and what was raised.
    Collectives fail on all others where one rank is gone, whoever's turn it is: a hook is to blame
    where it fails outside of one, or on all ranks alike.  Who knows says it in the store.
    """
    from ...staging.job import first_word

    label, in_collective, why = failed or (OWN, False, "")
    found = {} if label == OWN else {label: f"it failed: {why}"}
    with suppress(RuntimeError):  # the store is gone, or nobody says anything
        if in_collective and found and store.add(f"alike/{label}/{why}", 1) < ranks:
            store.wait(["failed"], _WAIT)
        return dict(json.loads(first_word(store, "failed", json.dumps(found))))
    return {} if in_collective else found
