"""The structs that others take from a comparison."""

from __future__ import annotations

import msgspec

from hooktrace.analysis.compare import Comparison, Difference

from .jobs import compared


def test_quantities_are_found_by_their_key() -> None:
    """``None`` where there is none."""
    found = compared()
    assert found.quantity("exposed") == found.quantities[2].difference
    assert found.quantity("nothing") is None
    assert Difference(a=1, b=2, verdict="differs").differs


def test_a_comparison_is_the_same_after_json() -> None:
    """So that it can be made elsewhere."""
    found = compared(bytes_per_second=2.5e8)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
