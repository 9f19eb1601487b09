"""What joins the ranks: read from words, and what a collective asks of it.

On a link of its own a collective of n ranks takes ``overhead + messages * latency + link bytes /
bandwidth``: the alpha-beta model (Thakur, Rabenseifner, Gropp, Optimization of Collective
Communication Operations in MPICH, 2005), with the algorithms that gloo has.  S is one rank's
payload:

    collective      messages in a row  bytes that a rank sends
    all_reduce      2 (n-1)            2 (n-1)/n S  ring: reduce-scatter, then all-gather
    all_gather      n-1                (n-1) S      ring
    reduce_scatter  n-1                (n-1)/n S    ring
    all_to_all      1                  (n-1)/n S    all sent at once, each to its rank
    broadcast       log2 n, up         log2 n S     binomial tree, at its root
    send_recv       1                  S

A gather of two ranks takes half as long again.  gloo sends a payload in two halves, each once the
other rank has said that it can take it, and what the later rank says lies behind its own halves,
which it sends already: between two ranks there is one connection.  So the earlier rank's halves go
half a payload's time later, and meanwhile the link carries what else there is.  (Measured: alone a
gather takes 1 or 1.5 times its bytes over the bandwidth, in training 1.5; of several under way at
once only the last one is late.)

Bytes are those that nccl-tests counts (``records.intervals.bus_bytes``), but for the broadcast,
which NCCL pipelines along a ring.  On hosts of several ranks, numbered one host after another, one
connection of a ring goes out of a host and one comes in, whatever the number of its ranks; what
goes to each rank by itself leaves the host from each of its ranks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from ...records.errors import UsageError
from ...records.intervals import bus_bytes
from .work import Network

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}  # either micro sign
_PART = re.compile(r"(\d+\.?\d*|\.\d+) *([a-zA-Zµμ]+)")
_REMEDY = "pass bandwidth and latency, as 25gbit,30us"


def parse_network(text: str) -> tuple[Network, bool]:
    """Return the network that ``text`` names, as ``25gbit,30us``, and whether it names a latency.

    Bandwidth in kbit, mbit, gbit or tbit (a second, powers of 1000), latency of one message in ns,
    us, ms or s; where none is named ``latency_ns`` is 0.  Raises ``UsageError`` for anything else.

    >>> network, has_latency = parse_network("25gbit,30us")
    >>> network.bandwidth, network.latency_ns, has_latency
    (3125000000.0, 30000.0, True)
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        what, value = _parsed(part.strip(), text)
        if what in found:
            raise UsageError(f"network {text!r} has two values for its {what}; {_REMEDY}")
        found[what] = value
    if not found.get("bandwidth"):
        raise UsageError(f"network {text!r} has no bandwidth above 0; {_REMEDY}")
    network = Network(latency_ns=found.get("latency", 0.0), bandwidth=found["bandwidth"])
    return network, "latency" in found


def _parsed(part: str, text: str) -> tuple[str, float]:
    match = _PART.fullmatch(part)
    unit = match[2].lower().replace("μ", "µ") if match else ""
    if match is None or (unit not in _BITS and unit not in _NS):
        raise UsageError(
            f"network {text!r}: {part!r} is neither a bandwidth (mbit, gbit) nor a latency "
            f"(us, ms); {_REMEDY}"
        )
    number = float(match[1])
    if unit in _BITS:
        return "bandwidth", number * _BITS[unit] / 8
    return "latency", number * _NS[unit]


def messages(collective: str, ranks: int) -> int:
    """Return how many messages of a collective go one after another, each paying the latency."""
    _check(collective)
    return _MESSAGES[collective](ranks) if ranks > 1 else 0


def link_bytes(collective: str, payload: float, ranks: int, per_host: int = 1) -> float:
    """Return the bytes that leave the host that sends most of them.

    ``payload``: one rank's, as ``Stage.wire_bytes``.  ``per_host``: its ranks; where all ranks are
    on one host the network joins them one by one.
    """
    _check(collective)
    if ranks <= 1:
        return 0.0
    here = per_host if per_host < ranks else 1
    if collective == "broadcast":
        return payload * messages(collective, -(-ranks // here))
    if collective in _TO_EACH_RANK:
        return payload * here * (ranks - here) / ranks
    return float(bus_bytes(collective, 1, ranks) or 0.0) * payload


def transfer_ns(collective: str, payload: float, ranks: int, network: Network) -> float:
    """Return what a collective takes in ns, all ranks being ready, if the link carries no other."""
    fixed = waking_ns(ranks, network) + fixed_ns(collective, payload, ranks, network)
    return fixed + link_ns(collective, payload, ranks, network)


def waking_ns(ranks: int, network: Network) -> float:
    """Return what a collective takes in ns that other threads of the rank have no core in."""
    return network.overhead_ns if ranks > 1 else 0.0


def fixed_ns(collective: str, payload: float, ranks: int, network: Network) -> float:
    """Return what a collective takes in ns while link and cores may serve others."""
    if ranks <= 1:
        return 0.0
    in_a_row = messages(collective, ranks) * network.latency_ns
    stalls = collective == "all_gather" and ranks == 2
    return in_a_row + stalls * link_ns(collective, payload, ranks, network) / 2


def link_ns(collective: str, payload: float, ranks: int, network: Network) -> float:
    """Return for how many ns a collective's bytes take the whole link.

    A ``shared`` link carries what a host sends and what it receives one after the other.
    """
    sent = link_bytes(collective, payload, ranks, network.per_host)
    return sent * (2 if network.shared else 1) * 1e9 / network.bandwidth


def _check(collective: str) -> None:
    if collective not in _MESSAGES:
        raise UsageError(
            f"nobody knows what a collective {collective!r} sends; "
            f"predict a hook that uses {', '.join(_MESSAGES)}"
        )


_TO_EACH_RANK = ("all_to_all", "all_to_allv")
_MESSAGES: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 2 * (n - 1),
    "all_gather": lambda n: n - 1,
    "reduce_scatter": lambda n: n - 1,
    "all_to_all": lambda n: 1,
    "all_to_allv": lambda n: 1,
    "broadcast": lambda n: math.ceil(math.log2(n)),
    "send_recv": lambda n: 1,
}
