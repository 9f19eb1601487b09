"""``hooktrace export``: the picture that Perfetto and ``chrome://tracing`` show of a run.

    Scene of each model --one rank after another, an event a line--> Chrome trace-event JSON

``pid`` is the rank; ``ts`` are microseconds of rank 0's clock since the first event.  Each bucket
index has a row of its own, its stages nested in it, and the steps have a row with the exposed time
nested at the end.  Of a sharded model each kind of collective has a row, with a slice a unit; what
is exposed is among the slices' arguments, since training waits at each.  Below all models are the
other collectives of sampled steps.  A rank whose clock nobody measured says so.

Perfetto drops a slice that overlaps another one of its row without nesting; such a slice goes to a
second row.  No more than a block of text is held, beside the columns of the run.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import BufferedWriter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.text import Text

from ..records import UNIT_KINDS, Unit
from ..records.units import counted, named_ranks
from .document.output import check_writable, writing
from .run import COUNTS, FLAGS, REASONS, UNKNOWN, Run, hangs, reasons
from .run.files import read_run
from .run.scene import Scene
from .run.waits import PIECES

Event = dict[str, Any]

_BLOCK = 1 << 20
_ROWS_PER_MODEL = 10_000
_ROWS_PER_OVERLAP = 1_000_000
_encode = msgspec.json.Encoder().encode


def export(run: Run, out: Path) -> int:
    """Write all ranks of a run as one file for Perfetto, compressed where ``out`` ends in ``.gz``.

    Returns how many slices it has.  Raises ``OSError``.
    """
    scenes, info = [Scene(run, model) for model in run.model_names or [""]], run.info
    other = {
        "run_id": info and info.run_id,
        "world_size": info and info.world_size,
        "ranks_with_unknown_clock": run.unaligned,
    }
    separator, slices = b"\n", 0
    with ExitStack() as stack:
        file: Any = stack.enter_context(out.open("wb"))
        if out.suffix == ".gz":
            # Without name and time, so that the same run makes the same file.
            zipped = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=4, mtime=0)
            file = stack.enter_context(BufferedWriter(zipped, _BLOCK))

        def emit(event: Event) -> None:
            nonlocal separator, slices
            file.write(separator + _line(event))
            separator = b",\n"
            slices += event["ph"] == "X"

        file.write(b'{"displayTimeUnit":"ms","otherData":%b,"traceEvents":[' % _line(other))
        origin = min(scene.first for scene in scenes)
        for i in range(len(run.tracks)):
            _RankEvents(scenes, i, origin, emit).write()
        file.write(b"\n]}\n")
    return slices


def _line(content: Event) -> bytes:
    """Return an object as JSON in ASCII, which all that read traces take for the same text."""
    line = _encode(content)
    return line if line.isascii() else json.dumps(content).encode()


def run_export(path: str | os.PathLike[str], *, out: Path, rank: int | None = None) -> None:
    """Write all ranks of a run, or one, as one trace; raises ``UsageError``."""
    console = Console(highlight=False, markup=False)
    check_writable(out)
    run = read_run(path, rank)
    with writing(out), console.status("writing"):
        slices = export(run, out)
    console.print(
        f"{out}: {counted(len(run.tracks), 'rank')}, {slices:,} slices, "
        f"{out.stat().st_size / 1e6:.1f} MB; open https://ui.perfetto.dev and drop it there",
        soft_wrap=True,
    )
    if run.unaligned:
        who = named_ranks(run.unaligned)
        console.print(
            Text(f"{who}: clock unknown, placed by its wall clock", style="yellow"), soft_wrap=True
        )


class _RankEvents:
    """Events of the ``i``-th rank, in ns after ``origin``, each passed to ``emit``."""

    def __init__(
        self, scenes: Sequence[Scene], i: int, origin: int, emit: Callable[[Event], object]
    ) -> None:
        self._scenes, self._i, self._emit = scenes, i, emit
        self._run, self._origin = scenes[0].run, origin
        self._track, self._clock = self._run.ranks[i]
        self._zero = 0  # what is added to a time is ns after the first event
        self._ends: dict[int, float] = {}

    def write(self) -> None:
        """Emit the rank's events; a slice comes before those within it."""
        number, run = self._track.rank, self._track.records.run
        name = f"rank {number}" if run is None else f"rank {number} ({run.host})"
        unknown = "" if self._clock.is_known else ", clock unknown"
        self._meta("process_name", name=name + unknown)
        self._meta("process_sort_index", sort_index=number)
        for model, scene in enumerate(self._scenes):
            self._zero = scene.origin - self._origin
            self._steps(model, scene)
            self._buckets(model, scene)
            self._anomalies(scene)
        self._hangs()
        self._others()

    def _meta(self, name: str, tid: int = 0, /, **args: object) -> None:
        self._emit({"ph": "M", "name": name, "pid": self._track.rank, "tid": tid, "args": args})

    def _event(self, ph: str, at: int, **fields: object) -> None:
        ts = (at + self._zero) / 1000
        self._emit({"ph": ph, "pid": self._track.rank, "ts": ts, **fields})

    def _slice(self, tid: int, start: int, end: int, **fields: object) -> None:
        self._event("X", start, dur=(end - start) / 1000, tid=tid, **fields)

    def _mark(self, tid: int, at: int, **fields: object) -> None:
        scope = "t" if tid else "p"  # of the row, or of all rows of the rank
        self._event("i", at, s=scope, tid=tid, **fields)

    def _tid(self, model: int, row: int = 0) -> int:
        """Return the first tid of a row of a model's, or behind all models of what is below."""
        # Perfetto shows threads in the order of their tids.  They start above the pid: a thread
        # whose tid is its pid counts as the process's main thread.
        return self._track.rank + 1 + model * _ROWS_PER_MODEL + row

    def _row(self, tid: int, title: str, start: int, end: float) -> int:
        """Return the tid for a slice, of one row more where it would overlap another."""
        overlap = 0
        while self._ends.get(tid, start) > start:
            tid += _ROWS_PER_OVERLAP
            overlap += 1
        if tid not in self._ends:
            more = f" (overlap {overlap})" if overlap else ""
            self._meta("thread_name", tid, name=title + more)
            self._meta("thread_sort_index", tid, sort_index=tid)
        self._ends[tid] = end
        return tid

    def _steps(self, model: int, scene: Scene) -> None:
        steps, columns = scene.steps.at(scene.steps.of_rank(self._i)), self._track.steps
        name, row = scene.model, steps.row
        sharded = bool(columns.having("sharded")[row].any())
        of_steps = steps.start, steps.last_ready, steps.end, steps.exposed, steps.number
        told = columns.exposed, columns.gradient_bytes, columns.wire_bytes
        for start, last_ready, end, drawn, step, why, exposed, payload, sent in _rows(
            *of_steps, reasons(self._run)[self._i][row], *(column[row] for column in told)
        ):
            tid = self._row(self._tid(model), f"{name}: steps", start, end)
            title = "payload_bytes" if sharded else "gradient_bytes"
            args = _known(**{title: payload}, wire_bytes=sent, exposed_ns=exposed)
            args |= {} if why == COUNTS else {"left_out": REASONS[why]}
            self._slice(tid, start, end, cat="step", name=f"step {step}", args=args)
            if drawn > 0 and not sharded:
                self._slice(tid, end - drawn, end, cat="exposed", name="exposed")
            if start <= last_ready <= end and not sharded:
                self._mark(tid, last_ready, cat="mark", name="last bucket ready")

    def _buckets(self, model: int, scene: Scene) -> None:
        bars, track = scene.bars.at(scene.bars.of_rank(self._i)), self._track
        columns, units = track.buckets, [*scene.units, None]
        pieces = scene.pieces(bars)
        derived = track.stages.derived[pieces.row]
        stages = [*_rows(pieces.kind, pieces.start, pieces.end, pieces.waited, derived)]
        ends = np.searchsorted(pieces.of, np.arange(len(bars)), "right")
        of_bars = bars.row, bars.start, bars.end, bars.step, bars.bucket, bars.unit
        sizes = columns.gradient_bytes, columns.wire_bytes, columns.exposed
        first = 0
        for row, start, end, step, bucket, which, last, *of in _rows(
            *of_bars, ends, *(column[bars.row] for column in sizes)
        ):
            payload, sent, exposed = of
            unit = units[which]
            at, title, named = _named(unit, bucket)
            tid = self._row(self._tid(model, at), f"{scene.model}: {title}", start, end)
            is_gather = unit is not None and unit.collective == "all_gather"
            size = "parameter_bytes" if is_gather else "gradient_bytes"
            args = {"step": step, size: payload, **_known(wire_bytes=sent, exposed_ns=exposed)}
            if columns.flags[row] & FLAGS["bounded"]:
                args["bounded"] = True
            self._slice(tid, start, end, **named, args=args)
            self._nested(stages[first:last], tid)
            first = last
            error = track.errors[row].relative_l2 if row in track.errors else None
            if error is not None:
                self._mark(tid, end, cat="mark", name=f"error {error:.3g}")

    def _nested(self, stages: Iterable[tuple[int, int, int, int, bool]], tid: int) -> None:
        """Emit a bucket's stages, cut to what those before left: slices must nest."""
        cursor = 0
        for kind, begun, end, waited, derived in stages:
            if end > (begin := max(cursor, begun)):
                cat, name = "derived" if derived else "stage", PIECES[kind]
                if waited > 0:
                    name = "wire: wait" if name == "wait" else "wire: transfer"
                self._slice(tid, begin, end, cat=cat, name=name)
                cursor = end

    def _anomalies(self, scene: Scene) -> None:
        for i, at, one in scene.anomalies:
            if i == self._i:
                args = {"message": one.message, "step": one.step, "bucket": one.bucket}
                self._mark(0, at, cat="anomaly", name=one.kind, args=args)

    def _hangs(self) -> None:
        """Emit a mark where each hang that the rank has a part in began."""
        self._zero = -self._origin
        for hang in hangs(self._run):
            one = hang.record
            args = {
                "message": one.sentence,
                "outcome": hang.outcome,
                "model": one.model,
                "step": one.step,
            }
            for part, ranks in (("waits", one.waiting), ("is waited for", one.ranks)):
                if self._track.rank in ranks:
                    self._mark(0, hang.start, cat="hang", name=f"hang: {part}", args=args)

    def _others(self) -> None:
        """Emit the collectives that belong to no bucket; a mark each where no end is known."""
        scene, row = self._scenes[0], self._tid(len(self._scenes))
        self._zero = scene.origin - self._origin
        own = scene.others.at(scene.others.of_rank(self._i))
        for call, start, end in _rows(own.row, own.start, own.end):
            one, of = scene.calls[call]
            args = {
                "step": of.step, "model": of.model, "wire_bytes": one.wire_bytes,
                "where": one.where, "thread": one.thread, "of_ddp": one.of_ddp,
            }  # fmt: skip
            fields: Event = {"cat": "other collective", "name": one.name, "args": args}
            tid = self._row(row, "other collectives", start, end)
            if one.done_ns is None:
                self._mark(tid, start, **fields)
            else:
                self._slice(tid, start, end, **fields)


def _rows(*columns: np.ndarray[Any, Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _known(**values: int) -> Event:
    return {name: value for name, value in values.items() if value != UNKNOWN}


def _named(unit: Unit | None, bucket: int) -> tuple[int, str, dict[str, str]]:
    """Return a bucket's row in its model's, the row's title, and its own kind and name."""
    if unit is None:
        return 1 + bucket, f"bucket {bucket}", {"cat": "bucket", "name": f"bucket {bucket}"}
    name = unit.name + (f" #{unit.repeat + 1}" if unit.repeat else "")
    return 1 + UNIT_KINDS.index(unit.kind), unit.kind, {"cat": "unit", "name": name}
