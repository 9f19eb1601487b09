"""The network of a run, from the transfers of its own collectives.

    Timeline --busy_periods--> ns with some collectives on the wire, together
             --medians of each composition over steps--> ns over bytes --Theil-Sen--> Network
             --steps drawn again--> intervals

A collective takes ``overhead + messages * latency + link bytes / bandwidth`` (``network``).  One
number of ranks cannot tell overhead from latency: of the line's intercept that much is latency as
half of a clock ping's round trip takes, which crosses the same network once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...records.errors import UsageError
from ...records.units import mb
from ..report.step_arrays import medians
from ..timeline import Ints, Timeline
from .hook_rules import Sent
from .network import fixed_ns, link_ns, messages
from .own_run import OwnRun, own_run
from .theil_sen import line, weighted_median
from .transfers import BusyPeriods, busy_periods
from .work import Floats, Network

DRAWS = 200
WAKING_NS = 400_000.0
"""What gloo takes for an all-reduce of a few bytes, latency and all: threads that wake up.  Median
of 0.35 to 0.65 ms between two ranks of one machine; taken where neither sizes nor pings tell more.
"""
_LEAST_RATIO = 4.0
"""Largest over smallest size, below which a line's slope says nothing of its intercept."""
_SMALL = 256_000.0
"""Bytes that 1 Gbit/s carries in 2 ms: so long do threads of a collective wait for busy cores."""
_MOSTLY_WAITING = (
    ", and so small that most of their time may be threads that wait for each other: the bandwidth "
    "may be many times as high, and what sends more be predicted as many times too long"
)
_MOST_STEPS = 256
"""As many steps, evenly chosen, say all that more would."""
_LEAST_SHARE = 0.05
"""Of a collective's time that is bandwidth, at least, where latency is not from the line."""


@dataclass(frozen=True, slots=True)
class NetworkFit:
    """The network that a run's collectives went over.

    ``low``, ``high``: each number's 95 % interval.  ``latency_known``: whether sizes tell it; else
    it is a clock ping's.  ``why``: a clause that says what all this rests on.  ``samples``: as
    ``network``, each of other draws of the run's steps.
    """

    network: Network
    low: Network
    high: Network
    latency_known: bool
    why: str
    samples: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class _Points:
    """Busy periods by what was on the wire: link bytes (k,), ns (rows, k), messages of one (k,)."""

    size: Floats
    ns: Floats
    messages: Floats

    def medians(self, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """Return sizes, medians of times over some rows, and messages of those that are there."""
        ns = medians(self.ns[rows], 0)
        there = ~np.isnan(ns)
        return self.size[there], ns[there], self.messages[there]


def fit_network(timeline: Timeline, model: str) -> NetworkFit:
    """Return the network of a model's run.

    Raises ``UsageError`` for a run that cannot tell: of one rank, of an opaque hook, of a hook that
    sends nothing, or without the files of some ranks.
    """
    own = own_run(timeline, model)
    steps = _some(own.arrays.steps)
    periods = busy_periods(timeline, model, steps, own.layout.generation, own.sent)
    points, ping_ns = _points(own, periods), _ping_ns(timeline)
    by_size = bool(points.size.max() >= _LEAST_RATIO * points.size.min())
    generator = np.random.default_rng(0)
    drawn = generator.integers(len(points.ns), size=(DRAWS, len(points.ns)))
    network, *samples = (
        _fitted(points.medians(rows), ping_ns, own.per_host, by_size)
        for rows in (np.arange(len(points.ns)), *drawn)
    )
    low, high = (_percentile(samples, share) for share in (0.025, 0.975))
    return NetworkFit(network, low, high, by_size, _why(points, by_size, ping_ns), tuple(samples))


def _some(steps: Ints) -> Ints:
    """Return steps, evenly chosen where there are many."""
    found: Ints = steps[np.linspace(0, len(steps) - 1, min(len(steps), _MOST_STEPS)).astype(int)]
    return found


def _points(own: OwnRun, periods: BusyPeriods) -> _Points:
    sizes = np.array([_size(together, own) for together in periods.compositions], np.float64)
    turns = [
        max(messages(one.collective, own.ranks) for one in together)
        for together in periods.compositions
    ]
    if not (sizes > 0).any():
        raise UsageError(
            "no settled step has the times of all its collectives, so the network cannot be "
            "fitted; name it, as --network 25gbit,30us"
        )
    sent = sizes > 0
    return _Points(sizes[sent], periods.ns[:, sent], np.array(turns, np.float64)[sent])


def _size(together: Sequence[Sent], own: OwnRun) -> float:
    """Return for how many bytes' time collectives have the wire if they follow each other closely.

    While one waits for messages of its own the next one has the link, so the last one's waiting
    alone is beside the sum of their bytes.
    """
    wire = Network(latency_ns=0.0, bandwidth=1e9, per_host=own.per_host)  # a byte a ns
    last = together[-1]
    return fixed_ns(last.collective, last.wire_bytes, own.ranks, wire) + sum(
        link_ns(one.collective, one.wire_bytes, own.ranks, wire) for one in together
    )


def _fitted(
    points: tuple[Floats, Floats, Floats], ping_ns: float | None, per_host: int, by_size: bool
) -> Network:
    """Return the network by which ``points`` take their times (``_Points.medians``)."""
    size, ns, turns = points
    if by_size and len(np.unique(size)) > 1:
        slope, fixed = line(size, ns)
        if slope > 0:
            paid, each = max(0.0, fixed), float(turns.mean())
            latency = paid / each if ping_ns is None else min(ping_ns, paid / each)
            overhead = paid - latency * each
            return Network(latency, 1e9 / slope, per_host=per_host, overhead_ns=overhead)
    latency = ping_ns or 0.0
    waking = np.maximum(turns * latency, WAKING_NS)
    moving = np.maximum(ns - waking, ns * _LEAST_SHARE)
    rate = weighted_median(size / moving, size)
    overhead = max(0.0, WAKING_NS - latency * float(turns.mean()))
    return Network(latency, rate * 1e9, per_host=per_host, overhead_ns=overhead)


def _ping_ns(timeline: Timeline) -> float | None:
    """Return half of the round trip of the clocks' pings; ``None`` where no rank has measured."""
    clocks = [clock for track in timeline.tracks for clock in track.records.clocks]
    trips = [clock.round_trip_ns for clock in clocks if clock.round_trip_ns > 0]
    return float(np.median(trips)) / 2 if trips else None


def _percentile(samples: Sequence[Network], share: float) -> Network:
    def of(values: Sequence[float]) -> float:
        return float(np.quantile(values, share))

    return replace(
        samples[0],
        latency_ns=of([one.latency_ns for one in samples]),
        bandwidth=of([one.bandwidth for one in samples]),
        overhead_ns=of([one.overhead_ns for one in samples]),
    )


def _why(points: _Points, by_size: bool, ping_ns: float | None) -> str:
    sizes = f"{mb(float(points.size.min()))} to {mb(float(points.size.max()))}"
    if by_size:
        return f"from {points.ns.size} transfers of {sizes}"
    latency = "that of gloo's own threads" if ping_ns is None else "that of a clock ping"
    return (
        f"from {points.ns.size} transfers of {sizes}, which differ too little in size to tell "
        f"latency from bandwidth: latency is {latency}"
        f"{_MOSTLY_WAITING if points.size.max() < _SMALL else ''}"
    )
