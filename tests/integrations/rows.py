"""The table of docs/frameworks.md: what tests declare that they show, of which framework.

    @shows(ACCELERATE, "checkpoints")            the test passes
    def test_...              == docs/frameworks.json, with the versions --docs/generate.py--> page

``tests/docs/test_frameworks.py`` holds the file equal to what tests declare.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any, NamedTuple

import pytest

from tests.distributed.harness import REPOSITORY

FILE = REPOSITORY / "docs" / "frameworks.json"
PYTHON = os.environ.get("HOOKTRACE_TEST_FRAMEWORKS", "")


class Framework(NamedTuple):
    """Its name, the line that its users write, and the package whose version was tried."""

    name: str
    line: str
    package: str


def shows(framework: Framework, *works: str) -> pytest.MarkDecorator:
    """Declare what works where the test passes."""
    return pytest.mark.shows(framework, works)


def rows(declared: list[tuple[Framework, tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Return a row for each framework, with all that works."""
    made: dict[str, dict[str, Any]] = {}
    for framework, works in declared:
        row = made.setdefault(framework.name, {**framework._asdict(), "works": []})
        row["works"] += [what for what in works if what not in row["works"]]
    return list(made.values())


def version(package: str) -> str:
    """Return which version of a package the frameworks' environment has, without its build."""
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    said = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=True)
    return said.stdout.strip().partition("+")[0]
