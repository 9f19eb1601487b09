"""What is drawn of a comparison."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.analysis.compare.pictures import bucket_picture, parts_picture, shares_picture

from .jobs import compared

FOUND = compared(bytes_per_second=2.5e8)


def test_each_part_has_a_dot_and_an_interval() -> None:
    """Pale where it is not shown to differ."""
    text = parts_picture(FOUND).__html__()  # type: ignore[union-attr]
    assert text.count("<circle") == len(FOUND.parts) + 1
    not_shown = [one for one in FOUND.parts if not one.difference.differs]
    assert text.count('class="point unsure"') == len(not_shown) > 0


def test_shares_beyond_the_axis_are_cut_off() -> None:
    """A stage of nearly nothing does not flatten all others."""
    late = compared(late_ms={2: 8.0})
    text = shares_picture(late).__html__()  # type: ignore[union-attr]
    assert ">300 %<" in text
    assert ">1000 %<" not in text


def test_each_bucket_has_two_bars() -> None:
    """Of A and B."""
    text = bucket_picture(FOUND).__html__()  # type: ignore[union-attr]
    assert text.count('class="side-a"') == text.count('class="side-b"') == 8
    assert "layers.7.weight" in text


def test_nothing_to_draw_is_no_picture() -> None:
    """As of two models, or of few steps."""
    few = compared(steps=12)
    assert parts_picture(replace(few, parts=(), step=None)) is None
    assert bucket_picture(replace(few, buckets=())) is None
    assert shares_picture(replace(few, quantities=())) is None
