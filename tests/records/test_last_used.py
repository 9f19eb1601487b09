"""What is remembered of models that come and go."""

from __future__ import annotations

from hooktrace.records.last_used import Bounded, LastUsed


def test_the_model_not_asked_for_longest_is_forgotten() -> None:
    known: LastUsed[str, list[int]] = LastUsed(list, most=2)
    known.of("a").append(1)
    known.of("b").append(2)
    assert known.of("a") == [1]
    assert known.of("c") == []
    assert len(known) == 2
    assert (known.of("a"), known.of("b")) == ([1], [])


def test_the_entry_that_was_set_first_goes() -> None:
    """One that is set again is as new; what went is handed back."""
    known: Bounded[str, int] = Bounded(2)
    known["a"], known["b"], known["a"] = 1, 2, 3
    assert known.put("c", 4) == 2
    assert known.put("c", 5) is None
    assert known == {"a": 3, "c": 5}
