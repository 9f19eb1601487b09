"""What is generated in the docs is what the code's tables say now."""

from __future__ import annotations

import runpy

import pytest

from ..distributed.harness import REPOSITORY

DOCS = REPOSITORY / "docs"
GENERATE = runpy.run_path(str(DOCS / "generate.py"))


@pytest.mark.parametrize("name", sorted(page.name for page in DOCS.glob("*.md")))
def test_generated_parts_are_up_to_date(name: str) -> None:
    """Where this fails: python docs/generate.py."""
    text = (DOCS / name).read_text("utf-8")
    assert GENERATE["filled"](text) == text


def test_a_default_of_nothing_is_not_written() -> None:
    """Two backticks with nothing in between are shown as they are."""
    assert "| `` |" not in (DOCS / "command-line.md").read_text("utf-8")


def test_every_table_has_its_place() -> None:
    """No part is made that no page has."""
    text = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert not [name for name in GENERATE["PARTS"] if f"<!-- generated: {name} -->" not in text]
