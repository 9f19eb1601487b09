"""Networks read from words; bytes and messages of each collective, counted by hand."""

from __future__ import annotations

import doctest

import pytest

from hooktrace.analysis.whatif import network
from hooktrace.analysis.whatif.network import (
    fixed_ns,
    link_bytes,
    link_ns,
    messages,
    parse_network,
    transfer_ns,
    waking_ns,
)
from hooktrace.analysis.whatif.work import Network
from hooktrace.records.errors import UsageError


@pytest.mark.parametrize(
    ("text", "latency_ns", "bandwidth"),
    [
        ("25gbit,30us", 30e3, 3.125e9),
        ("30 us, 25 Gbit", 30e3, 3.125e9),
        ("200Mbit", 0.0, 25e6),
        ("1.5tbit,.5ms", 0.5e6, 187.5e9),
        ("64kbit,2s", 2e9, 8e3),
        ("1gbit,7µs", 7e3, 125e6),
        ("1gbit,7\N{GREEK SMALL LETTER MU}s", 7e3, 125e6),
        ("1gbit,0ns", 0.0, 125e6),
    ],
)
def test_reads_a_network(text: str, latency_ns: float, bandwidth: float) -> None:
    expected = Network(pytest.approx(latency_ns), pytest.approx(bandwidth))
    assert parse_network(text) == (expected, "," in text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'' is neither a bandwidth"),
        ("25", "'25' is neither"),
        ("25gb,30us", "'25gb' is neither"),
        ("fast", "'fast' is neither"),
        ("30us", "no bandwidth above 0"),
        ("0gbit,30us", "no bandwidth above 0"),
        ("-1gbit", "'-1gbit' is neither"),
        ("1gbit,2gbit", "two values for its bandwidth"),
        ("1gbit,1us,2ms", "two values for its latency"),
        ("1gbit,", "'' is neither"),
        ("nangbit", "neither"),
    ],
)
def test_refuses_what_is_none(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_network(text)
    assert complaint in str(error.value)
    assert str(error.value).endswith("pass bandwidth and latency, as 25gbit,30us")


@pytest.mark.parametrize(
    ("collective", "ranks", "sent", "in_a_row"),
    [
        # A ring of 4: 3 quarters to be summed go on, then 3 sums.
        ("all_reduce", 4, 1200, 6),
        ("all_reduce", 2, 800, 2),
        # Each of 4 passes on the 3 payloads of 800 that its neighbour lacks.
        ("all_gather", 4, 2400, 3),
        ("reduce_scatter", 4, 600, 3),
        # A quarter stays, three go at once.
        ("all_to_all", 4, 600, 1),
        # The root of 4 sends to two children, of 5 to three.
        ("broadcast", 4, 1600, 2),
        ("broadcast", 5, 2400, 3),
        ("send_recv", 4, 800, 1),
    ],
)
def test_bytes_and_messages(collective: str, ranks: int, sent: float, in_a_row: int) -> None:
    assert link_bytes(collective, 800, ranks) == sent
    assert messages(collective, ranks) == in_a_row
    assert link_bytes(collective, 800, 1) == messages(collective, 1) == 0


def test_ranks_of_a_host_share_its_link() -> None:
    # 8 ranks on 2 hosts: of a ring one connection leaves a host, whatever its ranks.
    assert link_bytes("all_reduce", 800, 8, 4) == link_bytes("all_reduce", 800, 8) == 1400
    assert link_bytes("all_gather", 800, 8, 4) == 5600
    # Each of a host's 4 ranks sends an eighth to each of 4 others.
    assert link_bytes("all_to_all", 800, 8, 4) == 4 * 4 * 100
    # A tree of hosts.
    assert link_bytes("broadcast", 800, 8, 4) == 800
    # All on one host: the network is what joins them there.
    assert link_bytes("all_to_all", 800, 4, 8) == link_bytes("all_to_all", 800, 4)


def test_time_alone() -> None:
    apart = Network(latency_ns=1000, bandwidth=1e9)
    # 800 bytes at one a ns, and two messages.
    assert transfer_ns("all_reduce", 800, 2, apart) == 2800
    # However many ranks there are; one alone sends nothing.
    slow = Network(latency_ns=1000, bandwidth=1e9, overhead_ns=500)
    assert transfer_ns("all_reduce", 800, 2, slow) == 3300
    assert waking_ns(2, slow) == waking_ns(3, slow) == 500
    assert fixed_ns("all_reduce", 800, 3, slow) == 4000
    assert fixed_ns("all_reduce", 800, 1, slow) == transfer_ns("all_reduce", 800, 1, slow) == 0
    shared = Network(latency_ns=1000, bandwidth=1e9, shared=True)
    assert link_ns("all_reduce", 800, 2, shared) == 1600


def test_a_gather_of_two_ranks_is_half_a_payload_late() -> None:
    """It is on the link no longer for that, and of three ranks it is not late at all."""
    apart = Network(latency_ns=1000, bandwidth=1e9)
    assert link_ns("all_gather", 800, 2, apart) == 800
    assert transfer_ns("all_gather", 800, 2, apart) == 1000 + 800 + 400
    assert transfer_ns("all_gather", 800, 3, apart) == 2000 + 1600


def test_a_collective_that_nobody_knows_is_named() -> None:
    for function in (messages, lambda name, n: link_bytes(name, 1, n)):
        with pytest.raises(UsageError, match=r"collective 'hook' sends; predict a hook that uses"):
            function("hook", 2)


def test_the_example() -> None:
    assert doctest.testmod(network).failed == 0
