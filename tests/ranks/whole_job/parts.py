"""What ranks of a made-up job tell of their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hooktrace.ranks.whole_job.job_steps import Gatherer, RankLine
from hooktrace.records import StepSpread
from hooktrace.records.job import range_of

MODEL = ("net", "fp16_compress_hook")
MS = 1_000_000


def part_of(rank: int, step: int, *, delay_ms: int = 0) -> StepSpread:
    """Return one rank's part: 100 ms after the step before, 5 ms exposed, clocks true to 0.1 ms."""
    return StepSpread(
        step,
        period=range_of(100 * MS, rank),
        period_total_ns=100 * MS,
        exposed=range_of(5 * MS, rank),
        exposed_total_ns=5 * MS,
        arrival=range_of((step * 100 + delay_ms) * MS, rank),
        uncertainty_ns=MS // 10,
    )


def line_of(rank: int, parts: Sequence[StepSpread], *, host: str = "host") -> RankLine:
    arrivals = tuple((p.step, p.arrival.least_ns) for p in parts if p.arrival)[-8:]
    return RankLine(
        rank, host, MODEL[0], parts[-1].step, 100 * MS, 5 * MS, arrivals, parts[-1].uncertainty_ns
    )


def message_of(
    ranks: Iterable[int], steps: Iterable[int], *, late: int = -1, host: str = "host"
) -> bytes:
    """Return what a host tells of steps of its ranks; rank ``late`` came 7 ms after the others."""
    gatherer = Gatherer()
    for rank in ranks:
        parts = [part_of(rank, step, delay_ms=7 * (rank == late)) for step in steps]
        gatherer.add([(MODEL, part) for part in parts], [line_of(rank, parts, host=host)])
    message = gatherer.message()
    assert message is not None
    return message


class Seconds:
    now = 1000.0

    def __call__(self) -> float:
        return self.now
