"""Where calls that were only counted have come to."""

from __future__ import annotations

from hooktrace.capture.passed import PassedCalls


def test_each_call_is_the_next_bucket() -> None:
    """After the last one of a step comes the first of the next."""
    passed = PassedCalls(7, 1, 3)
    found = []
    for _ in range(6):
        found.append(passed.position)
        passed.calls += 1
    assert found == [(7, 1), (7, 2), (8, 0), (8, 1), (8, 2), (9, 0)]


def test_one_bucket_a_step() -> None:
    """Each call is a step."""
    passed = PassedCalls(4, 0, 1)
    passed.calls = 5
    assert passed.position == (9, 0)
