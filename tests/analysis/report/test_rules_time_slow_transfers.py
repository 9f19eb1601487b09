"""Which transfers take long beside others: by their time, and never for being small."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hooktrace.analysis.report.rules_time import bucket_is_slow, slow_transfers

MS = 1_000_000


def buckets(*transfers: tuple[int, float]) -> list[Any]:
    """Return buckets of so many bytes, which take so many ms."""
    return [
        SimpleNamespace(bucket=i, wire_bytes=sent, transfer_ns=took * MS, tail_share=0.5)
        for i, (sent, took) in enumerate(transfers)
    ]


def slow(*transfers: tuple[int, float]) -> list[tuple[int, float, float]]:
    """Return which are slow, with what they take and would, in ms."""
    found = slow_transfers(buckets(*transfers), lambda _, __: True)
    return [(one.of.bucket, one.took_ns / MS, one.usual_ns / MS) for one in found]


def test_where_latency_rules_the_smaller_payload_is_not_slow() -> None:
    """2.2 ms where payloads of twice its size take 2.0: at their rate it would take 1.0."""
    assert slow((1_000, 2.2), *[(2_000, 2.0)] * 3) == []
    assert slow(*[(1_000, 2.0)] * 3, (2_000, 2.2)) == []


def test_one_that_takes_thrice_as_long_is_slow() -> None:
    """Of a few bytes as of many; beside two others nobody can tell."""
    for sent in (1 << 8, 1 << 22):
        assert slow(*[(sent, 1.0)] * 3, (sent, 3.0)) == [(3, 3.0, 1.0)]
        assert slow(*[(sent, 1.0)] * 2, (sent, 3.0)) == []


def test_a_small_payload_is_not_said_to_have_a_bandwidth() -> None:
    """What it takes is said, and what others do."""
    model: Any = SimpleNamespace(
        has_wire=True,
        buckets=buckets(*[(288, 0.9)] * 3, (288, 13.4)),
        exposed=SimpleNamespace(p50=10 * MS),
    )
    (finding,) = bucket_is_slow(model, None)
    assert finding.sentence == (
        "Bucket 3 takes long on the wire: 13.4 ms for 288 B, where others, no larger, would take "
        "0.90 ms."
    )
    assert finding.gain_ns == 5 * MS
    model.exposed = SimpleNamespace(p50=100 * MS)
    assert [one.gain_ns for one in bucket_is_slow(model, None)] == [12.5 * MS]
