"""Transfers that take long beside those of others, of buckets and of units: the one rule.

    BucketFacts --slow_transfers--> SlowTransfer: what it takes, and what it would at others' rate

Others are as large, or down to half as large.  So a latency is in their times too, and counts for
more there: of payloads that are small, where it rules, none is slow for being the smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from .facts import BucketFacts

_ENOUGH = 3
"""Others beside which one may be slow."""


class SlowTransfer(NamedTuple):
    """One that takes twice as long as at the others' median rate, or longer; times in ns."""

    of: BucketFacts
    sent: float
    took_ns: float
    usual_ns: float
    others: int

    @property
    def excess_ns(self) -> float:
        """What it takes beyond."""
        return self.took_ns - self.usual_ns


def slow_transfers(
    buckets: Iterable[BucketFacts], are_alike: Callable[[BucketFacts, BucketFacts], bool]
) -> Iterator[SlowTransfer]:
    """Yield the slow ones; ``are_alike``: whether one may stand beside another."""
    moved = [(b, b.wire_bytes, b.transfer_ns) for b in buckets if b.wire_bytes and b.transfer_ns]
    for one, sent, took in moved:
        ns_a_byte = [
            ns / count
            for b, count, ns in moved
            if b is not one and are_alike(b, one) and 0.5 <= count / sent <= 1.05
        ]
        if len(ns_a_byte) < _ENOUGH:
            continue
        usual = sent * float(np.median(ns_a_byte))
        if took > 2 * usual:
            yield SlowTransfer(one, sent, took, usual, len(ns_a_byte))
