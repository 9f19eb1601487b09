"""A picture in the making: shapes as text, names escaped, colours by class so that CSS has them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import floor, log10

WIDTH = 1000.0
"""Units that every picture is wide."""


class Scale:
    """Maps values of ``[low, high]`` to picture units of ``[start, end]``, linearly."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = low, high if high > low else low + 1.0
        self._start, self._per = start, (end - start) / (self.high - self.low)

    def __call__(self, value: float) -> float:
        """Return where a value stands."""
        return self._start + (value - self.low) * self._per


def ticks(low: float, high: float, *, about: int = 6) -> list[float]:
    """Return round numbers from ``low`` to ``high``: 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about
    power: float = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first = -(-low // step)
    found = []
    while (value := first * step) <= high * (1 + 1e-9):
        found.append(value + 0.0)  # no -0
        first += 1
    return found


class Svg:
    """Shapes of a picture ``WIDTH`` x ``height``; ``title`` says what it shows."""

    def __init__(self, height: float, title: str) -> None:
        self._height = height
        self._title = title
        self._parts: list[str] = []

    def add(self, tag: str, cls: str, content: str = "", more: str = "", **numbers: float) -> None:
        """Add an element; ``content`` and ``more`` of its attributes are SVG."""
        said = "".join(f' {name.replace("_", "-")}="{_n(at)}"' for name, at in numbers.items())
        self._parts.append(f'<{tag}{said} class="{cls}"{more}>{content}</{tag}>')

    def text(self, x: float, y: float, text: str, cls: str = "tick", anchor: str = "start") -> None:
        """Add a line of text whose baseline is at ``y``."""
        self.add("text", cls, escape(text), f' text-anchor="{anchor}"', x=x, y=y)

    def path(self, path: str, cls: str) -> None:
        """Add a path of ``box``es."""
        self.add("path", cls, more=f' d="{path}"')

    def hatched(self, boxes: Iterable[tuple[float, float, float]], height: float) -> None:
        """Add hatched boxes of one height, each from ``x, y`` and so wide.

        The stripes are a dashed line as thick as the box is high: a pattern would have to be named
        by a URL.
        """
        found = list(boxes)
        if found:
            self.path("".join(box(x, y, width, height) for x, y, width in found), "pale")
            lines = "".join(f"M{_n(x)} {_n(y + height / 2)}h{_n(width)}" for x, y, width in found)
            self.add("path", "wait", more=f' d="{lines}"', stroke_width=height)

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str) -> None:
        """Add a line."""
        self.add("line", cls, x1=x1, y1=y1, x2=x2, y2=y2)

    def x_axis(self, scale: Scale, y: float, top: float, unit: str) -> None:
        """Add grid lines from ``top`` to ``y`` and their values below."""
        marks = ticks(scale.low, scale.high)
        for value in marks:
            label = f"{value:,g} {unit}" if value == marks[-1] else f"{value:,g}"
            self.line(scale(value), top, scale(value), y, "grid")
            self.text(scale(value), y + 14, label, anchor="middle")

    def __html__(self) -> str:
        """Return the picture; Jinja2 does not escape what has this method."""
        return (
            f'<svg viewBox="0 0 {_n(WIDTH)} {_n(self._height)}" role="img" '
            f'aria-label="{escape(self._title)}">{"".join(self._parts)}</svg>'
        )


def box(x: float, y: float, width: float, height: float) -> str:
    """Return a rectangle; many joined are one shape."""
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(value: float) -> str:
    """Return a coordinate to a tenth of a unit, without needless zeros."""
    return f"{value:.1f}".removesuffix(".0")
