"""Comparisons as one HTML file, in the report's style: nothing is loaded, names are escaped.

Comparisons --templates/compare.html.j2, report.css--> sentence, doubts, pictures, tables
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...records.units import mb
from ..report.page import environment
from .comparison import Comparison
from .numbers import MINUS, share, signed, value, verdict, within
from .pictures import bucket_picture, parts_picture, shares_picture
from .sentence import break_even_text

_PAGES = environment(Path(__file__).parent / "templates")
_CALLED = (
    *(bucket_picture, parts_picture, shares_picture, break_even_text),
    *(share, signed, value, verdict, within),
)
_PAGES.globals.update({called.__name__: called for called in _CALLED})
_PAGES.globals["MINUS"] = MINUS
_PAGES.filters["mb"] = mb


def page(found: Sequence[Comparison]) -> str:
    """Return the whole page of comparisons with one first side."""
    return _PAGES.get_template("compare.html.j2").render(comparisons=found)
