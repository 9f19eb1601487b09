"""Kinds of hangs: each says what to do, and one of a newer hooktrace is named too."""

from __future__ import annotations

from hooktrace.records.hang import HANGS, hang_kind


def test_each_kind_says_what_is_the_case_and_what_to_do() -> None:
    """In the form that a message needs: a sentence without its end, and a fix."""
    assert [(k.name, k.sentence[0].isupper(), bool(k.fix)) for k in HANGS.values()] == [
        (name, True, True) for name in HANGS
    ]


def test_a_kind_that_is_not_known_is_named() -> None:
    """A file of a newer hooktrace is read."""
    assert hang_kind("solar_flare").sentence == "Solar flare"
