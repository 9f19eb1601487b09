"""What the files of a run do not say, in sentences: the gravest first.

Run --missing--> ranks without a file, clocks, other runs' files; then what single ranks' files lack
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records.units import counted, named_ranks, ordinal
from .columns import RankTrack
from .run import Run


def missing(run: Run) -> list[str]:
    """Return the sentences; ranks whose files lack the same share one."""
    ranks: dict[str, list[int]] = {}
    for track in run.tracks:
        for text in _of_rank(track):
            ranks.setdefault(text, []).append(track.rank)
    own = (f"{named_ranks(of_text)}: {text}" for text, of_text in ranks.items())
    clocks = f"{named_ranks(run.unaligned)}: the clock was not measured against rank 0's; it is "
    clocks += "placed by its wall clock, and no rank is called late by it"
    return [*missing_of_run(run), *([clocks] if run.unaligned else []), *own]


def missing_of_run(run: Run) -> Iterator[str]:
    """Yield which ranks have no file of this run, or none that can be used as others' can."""
    if run.absent:
        yield (
            f"{named_ranks(run.absent)}: no record file; the run has {run.world_size} ranks, so "
            "a straggler among them is not seen"
        )
    if run.every > 1:
        yield (
            f"the buckets of every {ordinal(run.every)} step alone were read (--every): what is "
            "said of single buckets, of waits and of who is late is of these"
        )
    if run.other_runs:
        others = named_ranks(track.rank for track in run.other_runs)
        yield f"{others}: the file is of an earlier run and was left out"
    for one in run.unread:
        yield f"nothing of {one.file} is here: {one.why}"


def _of_rank(track: RankTrack) -> Iterator[str]:
    records = track.records
    if records.skipped:
        line, reason = records.skipped[0]
        left = len(records.skipped) - 1 + records.unnamed
        more = f", and {left:,} more lines" if left else ""
        what = f"line {line}" if line else "a file"
        yield f"{what} could not be read ({reason}){more}"
    if records.lost:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(records.lost.items()))
        yield (
            f"{kinds} are too large for a part of the file and were not written; pass a larger "
            "max_bytes to RecordFileExporter"
        )
    if gone := records.removed.get("steps"):
        yield (
            f"{gone:,} steps went with the oldest parts of the file when it had reached its limit, "
            "and nothing here is of them; pass a larger max_bytes to RecordFileExporter"
        )
    reasons = {model: why for (model, why), _ in reversed(track.unknown_bytes.most_common())}
    for model, why in reasons.items():
        count = track.unknown_bytes[model, why]
        of_all = count == track.is_of(track.steps, model).sum()
        steps = "" if of_all else f", in {counted(count, 'step')}"
        yield f"what {model} sends is not known{steps}: {why}"
    if not records.closed:
        yield "the file has no end: the process was killed, or it still runs"
    if incomplete := track.steps.having("incomplete").sum():
        yield f"steps that are not complete, out of all numbers: {incomplete}"
    if join_dummy := track.steps.having("join_dummy").sum():
        yield f"steps after it had run out of data (join), out of all numbers: {join_dummy}"
    if untimed := track.buckets.having("untimed").sum():
        yield f"buckets on a device that have no times: {untimed}"
