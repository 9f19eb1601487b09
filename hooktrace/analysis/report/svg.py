"""A picture in the making: shapes as text, names escaped, colours by class so that CSS has them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10


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
    if not high > low:
        return [low]
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
    """Shapes of a picture ``width`` x ``height``; ``title`` says what it shows."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = width, height
        self._title = title
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, cls: str,
        *, tip: str = "", opacity: float | None = None,
    ) -> None:  # fmt: skip
        """Add a rectangle; ``tip`` shows when the pointer rests on it."""
        extra = "" if opacity is None else f' fill-opacity="{opacity:.3f}"'
        head = f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        head += f' class="{cls}"{extra}'
        self._parts.append(f"{head}><title>{escape(tip)}</title></rect>" if tip else f"{head}/>")

    def boxes(self, boxes: Sequence[tuple[float, float, float, float]], cls: str) -> None:
        """Add many rectangles (x, y, width, height) of one class as one shape."""
        if boxes:
            path = "".join(f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h{_n(-w)}z" for x, y, w, h in boxes)
            self._parts.append(f'<path d="{path}" class="{cls}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str) -> None:
        """Add a line."""
        self._parts.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" class="{cls}"/>'
        )

    def curve(self, points: Sequence[tuple[float, float]], cls: str) -> None:
        """Add straight lines from point to point."""
        if points:
            path = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
            self._parts.append(f'<path d="M{path}" class="{cls}"/>')

    def dot(self, x: float, y: float, radius: float, cls: str, *, tip: str = "") -> None:
        """Add a circle."""
        self._parts.append(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" class="{cls}">'
            f"<title>{escape(tip)}</title></circle>"
        )

    def text(
        self, x: float, y: float, text: str, cls: str = "label", anchor: str = "start"
    ) -> None:
        """Add a line of text whose baseline is at ``y``."""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" class="{cls}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def x_axis(self, scale: Scale, y: float, top: float, unit: str) -> None:
        """Add grid lines from ``top`` to ``y`` and their values below."""
        marks = ticks(scale.low, scale.high)
        for value in marks:
            self.line(scale(value), top, scale(value), y, "grid")
            last = value == marks[-1]
            self.text(
                scale(value), y + 14, f"{value:,g}{' ' + unit if last else ''}", "tick", "middle"
            )

    def y_axis(self, scale: Scale, left: float, right: float, unit: str) -> None:
        """Add grid lines from ``left`` to ``right`` and their values before them."""
        for value in ticks(scale.low, scale.high, about=4):
            self.line(left, scale(value), right, scale(value), "grid")
            self.text(left - 6, scale(value) + 4, f"{value:,g}{unit}", "tick", "end")

    def __str__(self) -> str:
        width, height = self._size
        return (
            f'<svg viewBox="0 0 {_n(width)} {_n(height)}" role="img" '
            f'aria-label="{escape(self._title)}">{"".join(self._parts)}</svg>'
        )


def _n(value: float) -> str:
    """Return a coordinate to a tenth of a unit, without needless zeros."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")
