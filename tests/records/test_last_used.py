"""What is remembered of models that come and go."""

from __future__ import annotations

from hooktrace.records.last_used import LastUsed


def test_the_model_not_asked_for_longest_is_forgotten() -> None:
    known: LastUsed[str, list[int]] = LastUsed(list, most=2)
    known.of("a").append(1)
    known.of("b").append(2)
    assert known.of("a") == [1]
    assert known.of("c") == []
    assert len(known) == 2
    assert (known.of("a"), known.of("b")) == ([1], [])
