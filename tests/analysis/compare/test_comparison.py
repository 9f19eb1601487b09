"""The structs that others take from a comparison."""

from __future__ import annotations

import msgspec

from hooktrace.analysis.compare import Comparison

from .jobs import compared


def test_a_comparison_is_the_same_after_json() -> None:
    """So that it can be made elsewhere."""
    found = compared(bytes_per_second=2.5e8)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
