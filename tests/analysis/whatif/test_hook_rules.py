"""What hooks send for a bucket, by hand; that trials agree is in test_calibration.py."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.analysis.whatif.hook_rules import Sent, known_as, label_of, rule_of
from hooktrace.analysis.whatif.work import Parameter

BUCKET = (
    Parameter("matrix", (100, 10, 4), "float32", 16_000),
    Parameter("bias", (100,), "float32", 400),
    Parameter("scalar", (), "float32", 4),
    Parameter("small", (2, 3), "float32", 24),
)
ELEMENTS = 4000 + 100 + 1 + 6


@pytest.mark.parametrize(
    ("hook", "options", "expected"),
    [
        ("allreduce", {}, [Sent("all_reduce", 4 * ELEMENTS)]),
        ("allgather", {}, [Sent("all_gather", 4 * ELEMENTS)]),
        ("fp16", {}, [Sent("all_reduce", 2 * ELEMENTS, halves=ELEMENTS)]),
        ("bf16", {}, [Sent("all_reduce", 2 * ELEMENTS)]),
        ("quantize-per-tensor", {}, [Sent("all_gather", ELEMENTS + 5)]),
        ("quantize-per-channel", {}, [Sent("all_gather", ELEMENTS + 5 * 9)]),
        ("quantize-per-channel", {"bucket_size": 128}, [Sent("all_gather", ELEMENTS + 5 * 33)]),
        ("powersgd", {}, [Sent("all_reduce", 4 * (107 + 100)), Sent("all_reduce", 4 * 40)]),
        (
            "powersgd-rank2",
            {"matrix_approximation_rank": 2},
            [Sent("all_reduce", 4 * (107 + 200)), Sent("all_reduce", 4 * 80)],
        ),
        ("powersgd", {"min_compression_rate": 100}, [Sent("all_reduce", 4 * ELEMENTS)]),
        ("batched-powersgd", {}, [Sent("all_reduce", 4 * 65)] * 2),
        ("noop", {}, []),
    ],
)
def test_bytes(hook: str, options: dict[str, Any], expected: list[Sent]) -> None:
    """Of each round; PowerSGD leaves what would not get smaller as it is."""
    rule = rule_of(hook)
    assert rule is not None
    assert rule.sends(BUCKET, options) == expected


def test_names() -> None:
    """A function's name with what it is bound to, and the label that it is asked for by."""
    assert known_as("quantization_perchannel_hook(bucket_size=128)", {}) == (
        "quantize-per-channel",
        {"bucket_size": 128},
    )
    assert known_as("my_hook", {}) is None
    assert label_of("quantize-per-channel", {"bucket_size": 128}) == "quantize-per-channel-128"
    assert label_of("quantize-per-channel", {"bucket_size": 512}) == "quantize-per-channel"
    assert label_of("powersgd", {"matrix_approximation_rank": 4}) == "powersgd-rank4"
    assert label_of("powersgd-rank2", {"matrix_approximation_rank": 2}) == "powersgd-rank2"
    assert rule_of("my_hook") is None
