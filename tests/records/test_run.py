"""Host times as wall-clock times."""

from __future__ import annotations

from tests.exporters.records_sample import HOST_ANCHOR_NS, WALL_ANCHOR_NS, make_run


def test_the_anchors_are_the_same_moment() -> None:
    """Before it and after it, to the nanosecond."""
    run = make_run()
    assert run.wall_ns(HOST_ANCHOR_NS) == WALL_ANCHOR_NS
    assert run.wall_ns(HOST_ANCHOR_NS - 7) == WALL_ANCHOR_NS - 7
