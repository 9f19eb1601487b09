"""The nodes of a document, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

Tone = Literal["plain", "strong", "soft", "warn", "wrong", "good"]
"""How loud something is said."""


class Heading(msgspec.Struct, frozen=True):
    """What follows is about; ``level`` 2: one of several things alike, 3: a part of one."""

    text: str
    level: Literal[2, 3] = 3


class Text(msgspec.Struct, frozen=True):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


class Items(msgspec.Struct, frozen=True):
    """A list of sentences; of the tone ``warn`` what puts the rest in doubt."""

    texts: Sequence[str]
    tone: Tone = "plain"


class Code(msgspec.Struct, frozen=True):
    """Lines to copy."""

    lines: Sequence[str]


class Pairs(msgspec.Struct, frozen=True):
    """Names, and what is known of each."""

    rows: Sequence[tuple[str, str]]


class Tiles(msgspec.Struct, frozen=True):
    """The few numbers that matter most: each, and what it is."""

    rows: Sequence[tuple[str, str]]


class Found(msgspec.Struct, frozen=True):
    """A finding: ``label`` in front of it, a gain, or what it is; ``share`` of a step, if known.

    ``docs``: where the docs explain it.
    """

    label: str
    sentence: str
    evidence: Sequence[str] = ()
    fix: str = ""
    tone: Tone = "plain"
    share: float | None = None
    docs: str = ""


class Findings(msgspec.Struct, frozen=True):
    """Findings, the most important first."""

    found: Sequence[Found]


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    ``about``: what it holds, where its name does not say it.  ``rank``: in which order columns are
    left out where there is no room, the highest first; those of 0 stay.  ``of``: numbers; names,
    whose beginning may be cut; or words, which may go on in another line.
    """

    name: str
    about: str = ""
    rank: int = 0
    of: Literal["numbers", "names", "words"] = "numbers"


class Table(msgspec.Struct, frozen=True):
    """A table of texts.

    ``caption``: what is to know of all of it; what is to know of the columns follows.  ``folded``:
    more rows, of what ``folded_name`` says, for those who ask.  ``tones``: of the rows.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: Sequence[Sequence[str]] = ()
    folded_name: str = ""
    tones: Sequence[Tone] = ()

    def about(self, shown: Sequence[int]) -> str:
        """Return caption and what is to know of some columns, each thing once."""
        said = [self.caption, *(self.columns[i].about for i in shown)]
        return "; ".join(dict.fromkeys(text for text in said if text))


class Picture(msgspec.Struct, frozen=True):
    """A picture, drawn for a page alone, with colours and what they mean.

    ``draw`` returns what Jinja2 does not escape, as it has ``__html__``.
    """

    title: str
    draw: Callable[[], object]
    caption: str = ""
    legend: Sequence[tuple[str, str]] = ()


Node = Heading | Text | Items | Code | Pairs | Tiles | Findings | Table | Picture
