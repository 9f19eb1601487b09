"""What a run's files do not say, in sentences: a report of part of the data says which part."""

from __future__ import annotations

from ...records.units import listed
from ..timeline import RankTrack, Timeline


def missing(timeline: Timeline) -> list[str]:
    """Return what is missing, the gravest first."""
    found: list[str] = []
    ranks = {track.rank for track in timeline.tracks}
    size = timeline.run.world_size if timeline.run is not None else len(ranks)
    absent = set(range(size)) - ranks
    if absent:
        found.append(
            f"rank {listed(absent)}: no record file; the run has {size} ranks, so whoever is late "
            "among them is not seen"
        )
    if timeline.unaligned:
        found.append(
            f"rank {listed(timeline.unaligned)}: the clock was not measured against rank 0's; it "
            "is placed by its wall clock, and no rank is called late by it"
        )
    if timeline.other_runs:
        ranks_of = listed(track.rank for track in timeline.other_runs)
        found.append(f"rank {ranks_of}: the file is of another run and was left out")
    by_text: dict[str, list[int]] = {}
    for track in timeline.tracks:
        for text in _of_track(track):
            by_text.setdefault(text, []).append(track.rank)
    return found + [f"rank {listed(ranks)}: {text}" for text, ranks in by_text.items()]


def _of_track(track: RankTrack) -> list[str]:
    trace = track.records
    found = []
    if trace.skipped:
        line, reason = trace.skipped[0]
        more = "" if len(trace.skipped) == 1 else f", and {len(trace.skipped) - 1} more lines"
        found.append(f"line {line} could not be read ({reason}){more}")
    if trace.lost:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(trace.lost.items()))
        found.append(
            f"{kinds} were not written, as the file was full; pass a larger max_bytes to "
            "RecordFileExporter"
        )
    if not trace.closed:
        found.append("the file has no end: the process was killed, or it still runs")
    incomplete = int(track.steps.having("incomplete").sum())
    if incomplete:
        found.append(f"steps that are not complete, out of all numbers: {incomplete}")
    untimed = int(track.buckets.having("untimed").sum())
    if untimed:
        found.append(f"buckets on a device that have no times: {untimed}")
    return found
