"""Sentences: what was measured is called so, and nothing else is."""

from __future__ import annotations

import pytest

from hooktrace.analysis.whatif.choice import Choice
from hooktrace.analysis.whatif.words import (
    bit_rate,
    change_text,
    headline,
    latency,
    network_lines,
)
from hooktrace.analysis.whatif.work import Network

from .answers import answer, predicted

FAR = Choice(ranks=64, network=Network(30_000.0, 25e9 / 8), per_host=8)


def test_the_headline_is_of_the_run() -> None:
    """Its hook, buckets, ranks, measured step, and what the replay makes of it."""
    assert headline(answer()) == (
        "Measured: net, allreduce, buckets of 25 MB, 2 ranks on gloo: 402 ms a step, the median of "
        "180 steps. Replayed: 400 ms."
    )


def test_a_network_that_was_asked_for_is_told_from_the_runs_own() -> None:
    """Of the run's own it says the interval."""
    (own,) = network_lines(answer())
    assert own == (
        "Network, as this run's collectives saw it: 400 Mbit/s, 60 µs a message; 95 %: 384 Mbit/s "
        "to 416 Mbit/s."
    )
    *_, far = network_lines(answer(predicted(90.0, "fp16", error=3e-4, place=FAR)))
    assert far == "Predicted for 64 ranks on 25 Gbit/s, 30 µs a message, 8 ranks a host."


def test_a_change_is_of_what_differs() -> None:
    """Hook, buckets, or both; nobody says what the limit was where it is unknown."""
    one = answer()
    assert change_text(one, Choice("fp16", 5.0)) == (
        "fp16 in place of allreduce, buckets of 5 MB in place of 25 MB"
    )
    assert change_text(one, Choice(None, 5.0)) == "buckets of 5 MB in place of 25 MB"
    assert change_text(one, Choice("fp16")) == "fp16 in place of allreduce"


@pytest.mark.parametrize(
    ("rate", "text"), [(12.5e6, "100 Mbit/s"), (50e9, "400 Gbit/s"), (1.25e8, "1 Gbit/s")]
)
def test_rates_are_in_bits(rate: float, text: str) -> None:
    """As networks are sold."""
    assert bit_rate(rate) == text


def test_latencies() -> None:
    """In µs below a ms."""
    assert (latency(30_000.0), latency(1.2e6)) == ("30 µs", "1.2 ms")
