"""The docs are in plain English: habits that made them hard to read do not come back."""

from __future__ import annotations

import re

import pytest

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
}
"""By pattern, within a line of prose: what to write in its place."""

DATE = r"\b20\d\d-\d\d-\d\d\b"
DATED = ("CHANGELOG.md", "benchmarks.md", "on-gpus.md", "README.md")
"""Pages of measurements and of what was run."""


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_plain_words(page: Page) -> None:
    """None of the habits, and no date in an instruction."""
    prose = re.sub(r"<!-- generated.*?<!-- end -->", "", page.prose, flags=re.DOTALL)
    dates = {} if page.path.name in DATED else {DATE: "leave history to git"}
    found = [
        f"{line.strip()!r}: {better}"
        for line in prose.splitlines()
        for pattern, better in (BANNED | dates).items()
        if re.search(pattern, line)
    ]
    assert not found
