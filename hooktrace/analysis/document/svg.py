"""A picture in the making: paths as text, names escaped, colours by class so that CSS has them."""

from __future__ import annotations

from html import escape

WIDTH = 1000.0
"""Units that every picture is wide."""


class Svg:
    """Paths and texts of a picture ``WIDTH`` x ``height``; ``title`` says what it shows."""

    def __init__(self, height: float, title: str) -> None:
        self._height, self._title = height, title
        self._parts: list[str] = []

    def path(self, path: str, cls: str) -> None:
        """Add boxes and lines, joined."""
        self._parts.append(f'<path class="{cls}" d="{path}"/>')

    def text(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        """Add a line of text whose baseline is at ``y``."""
        at = f'x="{_n(x)}" y="{_n(y)}" class="tick" text-anchor="{anchor}"'
        self._parts.append(f"<text {at}>{escape(text)}</text>")

    def __html__(self) -> str:
        """Return the picture; Jinja2 does not escape what has this method."""
        return (
            f'<svg viewBox="0 0 {_n(WIDTH)} {_n(self._height)}" role="img" '
            f'aria-label="{escape(self._title)}">{"".join(self._parts)}</svg>'
        )


def box(x: float, y: float, width: float, height: float) -> str:
    """Return a rectangle."""
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(value: float) -> str:
    """Return a coordinate to a tenth of a unit, without needless zeros."""
    return f"{value:.1f}".removesuffix(".0")
