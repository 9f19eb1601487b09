"""The docs are in plain English: habits that made them hard to read do not come back."""

from __future__ import annotations

import re

import pytest

from ..distributed.harness import REPOSITORY
from .pages import PAGES, Page

BANNED = {
    r"^(?:- )?Of (?:a|an|the|what|those|all)\b": "begin with the subject",
    r"\b(?:is|are) (?:told|said)\b": "say who prints it",
    r"\bsaid so\b": "say who prints it",
    r"\b(?:no one|nobody) is named\b": "no rank is named",
    r"\bwhoever\b": "name the person or thing",
    r"\btold apart\b": "distinguished, or split",
    r"\bbudget (?:is )?not met\b": "the benchmark table says it",
    r"\bsettled\b": "steady-state, or after the bucket rebuild",
    r"\bunder way\b": "in flight",
    r"\bwait(?:s|ing)? for the last rank\b": "straggler wait",
    r"\bshadow (?:call|step)s?\b": "join() dummy step",
    r"\bopaque hooks?\b": "plain hook",
    r"\bdrain(?:'s)? thread\b|\bthe drain\b": "export thread",
    r"\bthe hub\b": "rank 0, or the coordinator",
    r"\bprobes\b|\bprobed (?:step|bucket)s?\b": "sampled check, sampled step",
    r"\bsteps? (?:that|which) counts?\b": "steady-state step",
    r"\bFSDP2? units?\b": "FSDP parameter group",
    r"\bremed(?:y|ies)\b": "fix",
    r"\blags?\b": "arrival delay",
    r"\bgenerations?\b": "bucket rebuild",
    r"\bbucket layouts?\b": "bucket assignment",
}
"""By pattern, within a line of prose: what to write in its place."""

DATE = r"\b20\d\d-\d\d-\d\d\b"
DATED = ("CHANGELOG.md", "benchmarks.md", "on-gpus.md", "README.md")
"""Pages of measurements and of what was run."""

MOST_WORDS, MOST_OF_CHANGELOG = 15_000, 800
"""Of all pages together, with README, CONTRIBUTING and CHANGELOG; of this one alone."""


def _written(page: Page) -> str:
    """Return what is written by hand: no code, no generated tables."""
    return re.sub(r"<!-- generated.*?<!-- end -->", "", page.prose, flags=re.DOTALL)


def _found(text: str, more: dict[str, str]) -> list[str]:
    return [
        f"{line.strip()[:80]!r}: {better}"
        for line in text.splitlines()
        for pattern, better in (BANNED | more).items()
        if re.search(pattern, line)
    ]


def test_each_thing_is_said_once() -> None:
    """Or the docs grow beyond what anybody reads; a word has a letter or a digit."""
    words = [word for page in PAGES for word in _written(page).split() if re.search(r"\w", word)]
    assert len(words) <= MOST_WORDS
    assert len((REPOSITORY / "CHANGELOG.md").read_text().split()) <= MOST_OF_CHANGELOG


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_plain_words(page: Page) -> None:
    """None of the habits, and no date in an instruction."""
    dates = {} if page.path.name in DATED else {DATE: "leave history to git"}
    assert not _found(re.sub(r"`[^`]*`", "`code`", _written(page)), dates)


def test_printed_words() -> None:
    """Nor in what the program prints: report, comparison, hangs and Comm Timeline of many jobs."""
    printed = sorted((REPOSITORY / "tests" / "analysis" / "golden").glob("*.txt"))
    assert printed
    assert not [found for path in printed for found in _found(path.read_text("utf-8"), {})]
