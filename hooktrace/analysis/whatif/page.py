"""Predictions as one HTML file, in the report's style: nothing is loaded, names are escaped.

Answer, Advised, Sweep --templates/whatif.html.j2, report.css--> advice, picture, table, doubts
"""

from __future__ import annotations

from pathlib import Path

from ..report.page import environment
from .advise import Advised
from .advised_words import advice_text, loss_text, verdict
from .answer import LIMITS, Answer
from .pictures import crossing_lines, legend, setting, sweep_picture
from .sweep import Sweep
from .terminal import COLUMNS, Code, cells
from .words import headline, network_lines, step_ms

_PAGES = environment(Path(__file__).parent / "templates")
_SAID = (advice_text, headline, loss_text, network_lines, step_ms, verdict)
_SHOWN = (cells, crossing_lines, legend, setting, sweep_picture)
_PAGES.globals.update({called.__name__: called for called in (*_SAID, *_SHOWN)})
_PAGES.globals.update(COLUMNS=COLUMNS, LIMITS=LIMITS)


def page(
    answer: Answer, advised: Advised | None, sweep: Sweep | None, *, code: Code | None = None
) -> str:
    """Return the whole page; ``code``: what makes a choice, to paste."""
    template = _PAGES.get_template("whatif.html.j2")
    return template.render(answer=answer, advised=advised, sweep=sweep, code=code)
