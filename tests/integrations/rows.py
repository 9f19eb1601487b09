"""The table of docs/frameworks.md: what tests declare that they show, of which framework.

    @shows(ACCELERATE, "checkpoints")            the test passes
    def test_...              --> docs/frameworks.json, with the versions --docs/generate.py--> page

The file is written by ``HOOKTRACE_TEST_WRITE=1 pytest`` of tests that declare something, and
``tests/docs/test_frameworks.py`` holds it equal to what they declare.
"""

from __future__ import annotations

import json
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


class Writer:
    """Writes the rows of frameworks of which all tests that were asked for have passed."""

    def __init__(self) -> None:
        self._declared: list[tuple[str, Framework, tuple[str, ...]]] = []
        self._passed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in item.iter_markers("shows"):
                self._declared.append((item.nodeid, *mark.args))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Put rows in the place of those of the same name; by name, after that of any framework."""
        tried = {f.name for _, f, _ in self._declared}
        tried -= {f.name for test, f, _ in self._declared if test not in self._passed}
        kept = {row["name"]: row for row in json.loads(FILE.read_text())}
        for row in rows([(framework, works) for _, framework, works in self._declared]):
            if row["name"] in tried:
                kept[row["name"]] = row | {"version": version(row["package"])}
        ordered = [kept[name] for name in sorted(kept, key=lambda n: (n != "any", n.lower()))]
        FILE.write_text(json.dumps(ordered, indent=1) + "\n")
