"""The table of docs/frameworks.md is of what tests declare, and of the versions that ran."""

from __future__ import annotations

import importlib
import json

from tests.distributed.harness import REPOSITORY
from tests.integrations import rows

WRITTEN = json.loads(rows.FILE.read_text())
FIX = "change docs/frameworks.json, after these tests have passed with those versions"


def declared() -> list[tuple[rows.Framework, tuple[str, ...]]]:
    """Return what stands above the tests, in their order."""
    paths = sorted((REPOSITORY / "tests").glob("*/test_*.py"))
    names = [f"tests.{p.parent.name}.{p.stem}" for p in paths if "@shows(" in p.read_text()]
    tests = [test for name in names for test in vars(importlib.import_module(name)).values()]
    marks = [mark for test in tests for mark in getattr(test, "pytestmark", ())]
    return [mark.args for mark in marks if mark.name == "shows"]


def test_what_tests_declare_is_written() -> None:
    """Where this fails: the fix, then docs/generate.py."""
    written = {row["name"]: {k: v for k, v in row.items() if k != "version"} for row in WRITTEN}
    assert written == {row["name"]: row for row in rows.rows(declared())}, FIX
    pins = (REPOSITORY / ".ci/frameworks.txt").read_text().splitlines()
    versions = {name.partition("[")[0]: version for name, _, version in map(_parted, pins)}
    for row in WRITTEN:
        assert row["version"] == versions.get(row["package"], row["version"]), FIX


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition("==")
