"""One step on all ranks as an image for notebooks: nothing is loaded, nothing runs.

    StepArrays --report's step_picture--> Svg --its style sheet and a legend--> one SVG --> <img>

An image and not the tab's own page: a notebook that somebody else saved shows no scripts, frames or
inline SVG until it is trusted, and where it is shown as a file (a code host, an export) never.  An
``<img>`` with its data inside is shown by all of them, and no style of it reaches the notebook.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape

from ...records.errors import UsageError
from ...records.units import listed, ms, named_ranks
from ..document.html import STYLE
from ..document.svg import WIDTH
from ..report import RunReport
from ..report.facts import ModelFacts
from ..report.pictures import step_picture
from ..report.tables import stages_of
from ..run import UNKNOWN, Run
from ..run import dense as report_arrays

_TOP = 46.0
"""Units above the picture, for title and legend."""
_EDGE = 10.0
_BOX = re.compile(r'viewBox="0 0 \S+ (\S+)"')
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file may have, escaped or not."""
_LETTER = 7.0
"""Units that a letter of the legend is wide, at most."""
_MOST_LETTERS = 130
"""Of a title, so that it ends inside the picture."""


@dataclass(frozen=True)
class StepPicture:
    """A step on all ranks; shows itself in a notebook.

    ``svg``: the picture as a file of its own.  ``title``: what it shows, in words.
    """

    title: str
    svg: str

    @cached_property
    def _data(self) -> str:
        return base64.b64encode(self.svg.encode()).decode()

    def _repr_html_(self) -> str:
        source = f"data:image/svg+xml;base64,{self._data}"
        return f'<img alt="{escape(self.title)}" style="width:100%" src="{source}">'

    def __repr__(self) -> str:
        return f"<{self.title}; .svg is the picture>"


def picture_of(run: Run, report: RunReport, step: int | None, model: str | None) -> StepPicture:
    """Return the picture of a step; raises ``UsageError`` as ``Run.timeline`` says."""
    if model is not None and model not in run.model_names:
        raise UsageError(f"no model is called {model!r}; pass one of {', '.join(run.model_names)}")
    named = [one for one in report.models if model in (None, one.facts.model)]
    if not named:
        why = report.missing[-1] if report.missing else "no step has settled"
        raise UsageError(f"there is no step to draw: {why}; train for more steps")
    arrays, facts = named[0].arrays, named[0].facts
    step = arrays.typical if step is None else step
    if step is None:
        raise UsageError("no step has its buckets in the files; record with a larger max_bytes")
    at = _place(arrays, step)
    arrays = arrays.detailed
    title = f"step {arrays.steps[at]} of {facts.model}: {facts.hook}, {len(facts.ranks)} ranks, "
    title += f"{ms(report_arrays.middle(arrays.period[:, at]))} to the next one"
    if report.unaligned:
        title += f"; the clock of {named_ranks(report.unaligned)} is its wall clock"
    return StepPicture(title, _standalone(step_picture(arrays, at).__html__(), title, facts))


def _place(arrays: report_arrays.StepArrays, step: int) -> int:
    if arrays.place_of(step) == UNKNOWN:
        raise UsageError(
            f"step {step} is none of the settled ones of {arrays.model}, which are drawn: not in "
            "the files, a first step, probed, hung, cut off, or of an earlier bucket layout; pass "
            f"one of {listed(arrays.steps.tolist())}"
        )
    place = arrays.detailed.place_of(step)
    if place == UNKNOWN or (~(arrays.detailed.done[:, place] > 0)).all():
        raise UsageError(
            f"the buckets of step {step} are not in the files, whose limit left them out; pass "
            "another step, or record with a larger max_bytes"
        )
    return place


def _standalone(picture: str, title: str, facts: ModelFacts) -> str:
    """Return a file of its own: style, title and legend above the picture, all in one clock."""
    found = _BOX.search(picture)
    height = float(found[1]) if found else 0.0
    wide, high = WIDTH + 2 * _EDGE, height + _TOP + _EDGE
    inner = picture.replace(
        "<svg ", f'<svg x="{_EDGE}" y="{_TOP}" width="{WIDTH:g}" height="{height:g}" ', 1
    )
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" '
        f'width="{wide:g}" height="{high:g}"><style>{escape(STYLE, quote=False)}'
        f"svg svg{{width:{WIDTH:g}px}}</style>"
        f'<rect width="{wide:g}" height="{high:g}" rx="8" style="fill:var(--card)"/>'
        f'<text x="{_EDGE}" y="18" class="label">{escape(_short(title))}</text>'
        f"{_legend(facts, picture)}{inner}</svg>"
    )
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _short(title: str) -> str:
    return title if len(title) <= _MOST_LETTERS else f"{title[: _MOST_LETTERS - 3]}..."


def _legend(facts: ModelFacts, picture: str) -> str:
    """Return a swatch for each kind of shape that is in the picture."""
    parts, x = [], _EDGE
    for cls, name in [*((one, one) for one in stages_of(facts)), *_MARKS]:
        if f'class="{cls}"' not in picture:
            continue
        parts.append(_SWATCH.get(cls, _square)(x, cls))
        parts.append(f'<text x="{x + 16:g}" y="36" class="tick">{escape(name)}</text>')
        x += 34 + _LETTER * len(name)
    return "".join(parts)


def _square(x: float, cls: str) -> str:
    return f'<rect x="{x:g}" y="26" width="11" height="11" rx="2" class="{escape(cls)}"/>'


def _stroke(x: float, cls: str) -> str:
    return f'<line x1="{x + 5:g}" x2="{x + 5:g}" y1="25" y2="38" class="{escape(cls)}"/>'


def _hatched(x: float, cls: str) -> str:
    line = f'<path d="M{x:g} 31.5h11" stroke-width="11" class="{escape(cls)}"/>'
    return _square(x, "pale") + line


_MARKS = (
    ("wait", "wait for the last rank"),
    ("exposed", "exposed"),
    ("ended", "last gradient ready"),
)
_SWATCH: dict[str, Callable[[float, str], str]] = {"ended": _stroke, "wait": _hatched}
