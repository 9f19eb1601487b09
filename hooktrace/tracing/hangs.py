"""What a tracer does about hangs: it is watched, and takes records of them as ``on_hang`` says.

TracerHangs --models, usual durations--> ranks/hang --HangRecord--> ring; log, dump or abort
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..ranks.hang.collectives import collectives
from ..ranks.hang.look import look
from ..ranks.hang.sentences import stamped
from ..ranks.hang.service import stacks_text
from ..ranks.hang.watchdog import Pauses
from ..records import HangRecord
from ..records.files import record_path
from ..staging.slots import ModelState
from .options import OnHang

if TYPE_CHECKING:
    from .tracer import Tracer

logger = logging.getLogger("hooktrace")

EXIT_CODE = 75
"""Of a process that ``on_hang="abort"`` ends: a failure that may pass when it is tried again."""

_FLUSH_S = 5.0
"""What was recorded has that long to reach the exporters before a process is ended."""

_ENOUGH = 20
"""Buckets of a model that say what is usual."""


class TracerHangs:
    """A tracer among those that are watched, with the options of ``Tracer``."""

    def __init__(self, tracer: Tracer, hang_after_s: float | None, on_hang: OnHang) -> None:
        self.hang_after_s = hang_after_s
        self.clock = tracer.clock
        self._tracer = tracer
        self._on_hang = on_hang
        self.pauses = Pauses()
        """Open where somebody has said that it may take long now."""

    @property
    def paused(self) -> bool:
        """Whether somebody has said that it may take long now."""
        return self.pauses.active

    def model_states(self) -> list[ModelState]:
        """Return the tracer's models."""
        return self._tracer.models.all()

    def usual_ns(self, model: str) -> int | None:
        """Return the 99th percentile of a model's bucket durations, ``None`` where unknown."""
        durations = sorted(self._tracer.bucket_durations(model))
        return durations[len(durations) * 99 // 100] if len(durations) >= _ENOUGH else None

    def hear_of_hang(self, record: HangRecord, *, speaks: bool) -> None:
        """Take a record: into the ring, and on as ``on_hang`` says.

        ``speaks``: of the ranks of this host it is the one to log it; all are told the same.
        """
        self._tracer.push(record)
        said = f"hang: {record.message}"
        if record.ended_after_ns is None:
            said += f"; see {record.docs}"
        line = stamped(record.rank, time.time_ns(), said) if speaks else ""
        if self._on_hang != "record":
            # A log's lock, a disk may be what ranks wait for: not on the thread that answers here.
            threading.Thread(
                target=self._act,
                args=(record, line),
                name="hooktrace-hang-" + self._on_hang,
                daemon=True,
            ).start()

    def _act(self, record: HangRecord, line: str) -> None:
        is_new = record.ended_after_ns is None
        if is_new and self._on_hang == "abort":
            self._abort(record)
        if line:
            logger.warning("%s", line)
        if is_new and self._on_hang == "dump":
            self._dump(record)

    def _dump(self, record: HangRecord) -> None:
        text = dump_text(record, self.model_states(), self.clock())
        folders = [record_path(logdir, 0).parent for logdir in self._tracer.logdirs]
        for folder in folders or [Path.cwd()]:
            path = folder / f"hang{record.hang:03}-rank{record.rank:05}.txt"
            try:
                path.write_text(text)
            except OSError as error:
                logger.warning("the hang's stacks could not be written (%s): %s", path, error)
            else:
                logger.warning("the hang's stacks of this rank are in %s", path)

    def _abort(self, record: HangRecord) -> None:
        try:
            self._tracer.flush(_FLUSH_S)
        finally:
            # Not through logging: what handles it may be what hangs.
            said = f"hooktrace ends rank {record.rank} (on_hang='abort'): {record.message}\n"
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, said.encode())
            os._exit(EXIT_CODE)


def dump_text(record: HangRecord, models: list[ModelState], now_ns: int) -> str:
    """Return what this rank knows: the sentence, its calls, torch's collectives, its stacks."""
    lines = [record.message, ""]
    for model in look(models, now_ns):
        lines.append(f"{model.model}: step {model.step}, {model.name}")
        lines += [
            f"  {call.name} of step {call.step} for {call.age_ns / 1e9:.1f} s: "
            f"{call.stage} {call.collective}".rstrip()
            for call in model.in_flight
        ]
    known = collectives()
    lines.append("")
    if known is None:
        lines.append("torch's Flight Recorder tells nothing")
    else:
        lines.append(f"torch's Flight Recorder: {len(known.pending)} pending collective(s)")
        lines += [
            f"  {one.kind} of {one.numel:,} elements, number {one.number} of group {one.name!r}"
            for one in known.pending
        ]
    return "\n".join([*lines, "", stacks_text(), ""])
