"""What is generated in the docs is what the code's tables say now."""

from __future__ import annotations

import importlib.util
from collections.abc import Sized
from pathlib import Path
from types import ModuleType

import pytest

from hooktrace.records.anomalies import ANOMALIES
from hooktrace.records.metrics import METRICS

from ..distributed.harness import REPOSITORY


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", REPOSITORY / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda p: p.name)
def test_generated_parts_are_up_to_date(generate: ModuleType, page: Path) -> None:
    """Where this fails: python docs/generate.py."""
    text = page.read_text("utf-8")
    assert generate.filled(text) == text


def test_every_table_has_its_place(generate: ModuleType) -> None:
    """No part is made that no page has."""
    text = "".join(page.read_text("utf-8") for page in (REPOSITORY / "docs").glob("*.md"))
    assert not [name for name in generate.PARTS if f"<!-- generated: {name} -->" not in text]


@pytest.mark.parametrize(("name", "of"), [("metrics", METRICS), ("anomalies", ANOMALIES)])
def test_a_table_has_a_row_for_each(generate: ModuleType, name: str, of: Sized) -> None:
    """Of as many cells as columns, whatever stands in them."""
    lines = generate.PARTS[name]().splitlines()
    assert len(lines) == 2 + len(of)
    assert {line.count("|") for line in lines} == {7}


def test_what_is_by_hand_stays(generate: ModuleType) -> None:
    """Only the part between the two marks is replaced."""
    page = "before\n<!-- generated: metrics -->\nold\n<!-- end -->\nafter\n"
    made = generate.filled(page)
    assert made.startswith("before\n")
    assert made.endswith("\nafter\n")
    assert "old" not in made
