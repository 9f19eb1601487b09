"""What a rank's answer says of a call's place, and what people call it."""

from __future__ import annotations

from tests.ranks.hang.answers import STEP, call, model


def test_places_of_buckets() -> None:
    """DDP's come in ascending order."""
    one = call(5)
    assert (one.place, one.name) == (("model0", STEP, 5), "bucket 5")
    assert (model(one).position, model(one).name) == ((STEP, 5), "bucket 5")


def test_places_of_units() -> None:
    """A sharded model's buckets tell no order: what counts is how many collectives were before."""
    one = call(31, unit="head all-gather (forward)", order=9)
    assert (one.place, one.name) == (("model0", STEP, 9), "head all-gather (forward)")
    status = model(one, unit=one.unit, order=9)
    assert (status.position, status.name) == ((STEP, 9), "head all-gather (forward)")
