"""The table of anomalies, the code that finds them and what follows the table agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import hooktrace
from hooktrace.records.anomalies import ANOMALIES, anomaly_kind

_REPORT = {"anomaly", "_anomaly", "anomaly_of", "note", "find", "problem", "_silent", "Flaw"}
"""Calls of these names say a kind, as one of the first two arguments."""


def _words(tree: ast.AST) -> set[str]:
    """Return the strings in a piece of code that could be a kind."""
    texts = {str(one.value) for one in ast.walk(tree) if isinstance(one, ast.Constant)}
    return {text for text in texts if re.fullmatch(r"[a-z_]{4,}", text)}


def test_each_kind_is_emitted_somewhere_and_each_emitted_one_is_in_the_table() -> None:
    emitted: set[str] = set()
    said: set[str] = set()
    for package in ("probes", "tracing", "testing", "integrations"):
        for path in (Path(hooktrace.__file__).parent / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            said |= _words(tree)
            for node in ast.walk(tree):
                name = getattr(node, "func", None)
                if getattr(name, "attr", getattr(name, "id", "")) in _REPORT:
                    emitted |= {word for one in node.args[:2] for word in _words(one)}  # type: ignore[attr-defined]
    assert emitted <= set(ANOMALIES) <= said
    assert len(emitted) >= 15


def test_a_kind_says_what_is_the_case_and_what_to_do() -> None:
    """A sentence without its full stop, and a fix in lower case."""
    for kind in ANOMALIES.values():
        assert re.fullmatch(r"[A-Z].*[^.]", kind.sentence), kind
        assert re.fullmatch(r"[a-z].*[^.]", kind.fix), kind


def test_wrong_gradients_fail_a_check_but_for_those_that_came_in_wrong() -> None:
    """NaN in a gradient is no fault of the hook's; of a kind that is not known nothing is said."""
    wrong = {name for name, kind in ANOMALIES.items() if kind.gradients_wrong}
    warning = {name for name in wrong if anomaly_kind(name).severity != "fail"}
    assert warning == {"nonfinite_gradient"}
    assert anomaly_kind("brand_new")[:4] == ("brand_new", "Brand new", "", False)
