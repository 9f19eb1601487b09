"""The page: advice with its code, the sweep, the table; names are text, nothing is loaded."""

from __future__ import annotations

from hooktrace.analysis.whatif.advise import advise
from hooktrace.analysis.whatif.answer import LIMITS
from hooktrace.analysis.whatif.page import page
from tests.analysis.report.test_command import Page

from .answers import answer, predicted
from .sweeps import made_up

EVIL = "<script>alert(1)</script>&\"'[bold]x[/nonsense]"


def test_all_of_it_on_one_page() -> None:
    """Names of hooks are escaped wherever they stand."""
    one = answer(predicted(210.0, "fp16", 5.0, error=3e-4), predicted(200.0, EVIL, error=0.1))
    shown = Page(page(one, advise(one), made_up(), code=lambda _, choice: f"use({choice.hook!r})"))
    assert "script" not in shown.tags
    assert shown.tags.count("svg") == 1
    assert shown.tags.count("pre") == 2
    assert EVIL in shown.text
    assert "use('fp16')" in shown.text
    assert LIMITS in shown.text
    assert not [v for k, v in shown.attributes if k in ("src", "href")]
    assert shown.text.lower().count("measured") == 1


def test_without_advice_and_sweep() -> None:
    """The table alone."""
    shown = Page(page(answer(), None, None))
    assert "svg" not in shown.tags
    assert "Advice" not in shown.text
