"""Pictures are text: round ticks, escaped names, short coordinates."""

from __future__ import annotations

import pytest

from hooktrace.analysis.document.svg import Scale, Svg, box, curve, ticks


@pytest.mark.parametrize(
    ("low", "high", "about", "expected"),
    [
        (0, 10, 6, [0, 2, 4, 6, 8, 10]),
        (0, 1, 4, [0, 0.5, 1]),
        (-3, 3, 6, [-3, -2, -1, 0, 1, 2, 3]),
        (950, 2100, 6, [1000, 1200, 1400, 1600, 1800, 2000]),
    ],
)
def test_ticks_are_round(low: float, high: float, about: int, expected: list[float]) -> None:
    """1, 2 or 5 times a power of ten apart, and all inside."""
    assert ticks(low, high, about=about) == pytest.approx(expected)


def test_a_scale_of_one_value_divides_by_nothing() -> None:
    """As where a run has one step."""
    assert Scale(3.0, 3.0, 10.0, 20.0)(3.0) == 10.0
    assert Scale(0.0, 4.0, 20.0, 10.0)(1.0) == 17.5


def test_names_are_escaped_wherever_they_stand() -> None:
    """In the title, in a line of text and in what the pointer shows."""
    svg = Svg(20, '<a> & "b"')
    svg.text(1, 2, "<b>")
    svg.add("rect", "box", tip="<c>", opacity=0.5, x=1.04, width=2)
    assert svg.__html__() == (
        '<svg viewBox="0 0 1000 20" role="img" aria-label="&lt;a&gt; &amp; &quot;b&quot;">'
        '<text x="1" y="2" class="tick" text-anchor="start">&lt;b&gt;</text>'
        '<rect x="1" width="2" class="box" fill-opacity="0.500"><title>&lt;c&gt;</title></rect>'
        "</svg>"
    )


def test_shapes() -> None:
    """To a tenth of a unit."""
    assert curve([(0, 1), (2.25, 3)]) == "M0 1L2.2 3"
    assert box(1, 2, 3, 4) + box(0, 0, 1, 1) == "M1 2h3v4h-3zM0 0h1v1h-1z"
