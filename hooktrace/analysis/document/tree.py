"""The nodes of a document, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .svg import Svg

Tone = Literal["plain", "strong", "soft", "warn", "wrong", "good"]
"""How loud something is said."""


@dataclass(frozen=True)
class Heading:
    """What follows is about; ``level`` 2: one of several things alike, 3: a part of one."""

    text: str
    level: Literal[2, 3] = 3


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Items:
    """A list of sentences; of the tone ``warn`` what puts the rest in doubt."""

    texts: Sequence[str]
    tone: Tone = "plain"


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Pairs:
    """Names, and what is known of each."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Tiles:
    """The few numbers that matter most: each, and what it is."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Found:
    """A finding: ``label`` in front of it, a gain, or what it is; ``share`` of a step, if known."""

    label: str
    sentence: str
    evidence: Sequence[str] = ()
    remedy: str = ""
    tone: Tone = "plain"
    share: float | None = None


@dataclass(frozen=True)
class Findings:
    """Findings, the most important first."""

    found: Sequence[Found]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``about``: what it holds, where its name does not say it.  ``rank``: in which order columns are
    left out where there is no room, the highest first; those of 0 stay.  ``of``: numbers; names,
    whose beginning may be cut; or words, which may go on in another line.
    """

    name: str
    about: str = ""
    rank: int = 0
    of: Literal["numbers", "names", "words"] = "numbers"


@dataclass(frozen=True)
class Table:
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


@dataclass(frozen=True)
class Picture:
    """A picture, with colours and what they mean, or what is said in its place."""

    title: str
    svg: Svg | None
    caption: str = ""
    legend: Sequence[tuple[str, str]] = ()
    otherwise: str = ""


Node = Heading | Text | Items | Code | Pairs | Tiles | Findings | Table | Picture
