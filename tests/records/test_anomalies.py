"""The table of anomalies, the code that finds them and what follows the table agree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hooktrace
from hooktrace.records.anomalies import ANOMALIES, anomaly_kind

_KIND_AT = {
    "anomaly": 0,
    "_anomaly": 0,
    "anomaly_of": 1,
    "push_anomaly": 0,
    "_note": 0,
    "find": 0,
    "problem": 0,
    "_silent": 1,
    "Flaw": 0,
}
"""Which argument of these calls is the kind."""


def _texts(node: ast.expr) -> Iterator[str]:
    nodes = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    for one in nodes:
        if isinstance(one, ast.Tuple):
            yield from _texts(one.elts[0])
        if isinstance(one, ast.Constant) and re.fullmatch(r"[a-z_]+", str(one.value)):
            yield str(one.value)


def _of_pair(key: ast.expr | None, value: ast.expr) -> Iterator[str]:
    return _texts(value.elts[1]) if isinstance(value, ast.Tuple) else iter(())


_TABLES = {"_ODD": _of_pair}
"""Dictionaries of kinds: they are the second of each pair in their values."""


def _emitted(tree: ast.Module) -> Iterator[str]:
    """Yield the kinds that a module's code names where it reports something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _KIND_AT and len(node.args) > _KIND_AT[name]:
                yield from _texts(node.args[_KIND_AT[name]])
            for keyword in node.keywords if name in {"Problem", "Flaw", "AnomalyRecord"} else ():
                if keyword.arg == "kind":
                    yield from _texts(keyword.value)
        if isinstance(node, ast.FunctionDef) and node.name == "named_factors":
            for given in ast.walk(node):
                if isinstance(given, ast.Dict):
                    yield from (text for key in given.keys if key for text in _texts(key))
        if isinstance(node, ast.Assign):
            (target,) = node.targets[:1]
            first = target.elts[0] if isinstance(target, ast.Tuple) else target
            if isinstance(first, ast.Name) and first.id in {"kind", "wrong"}:
                yield from _texts(node.value)
            table = first.id if isinstance(first, ast.Name) else ""
            if table in _TABLES and isinstance(node.value, ast.Dict):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    yield from _TABLES[table](key, value)


def test_each_kind_is_emitted_somewhere_and_each_emitted_one_is_in_the_table() -> None:
    found: set[str] = set()
    root = Path(hooktrace.__file__).parent
    for package in ("probes", "tracing", "testing"):
        for path in (root / package).rglob("*.py"):
            found |= set(_emitted(ast.parse(path.read_text())))
    assert found == set(ANOMALIES)


def test_a_kind_says_what_is_the_case_and_what_to_do() -> None:
    """A sentence without its full stop, and a fix in lower case."""
    for kind in ANOMALIES.values():
        assert re.fullmatch(r"[A-Z].*[^.]", kind.sentence), kind
        assert re.fullmatch(r"[a-z].*[^.]", kind.fix), kind


def test_wrong_gradients_fail_a_check_but_for_those_that_came_in_wrong() -> None:
    """NaN in a gradient is no fault of the hook's."""
    wrong = {name for name, kind in ANOMALIES.items() if kind.gradients_wrong}
    warning = {name for name in wrong if anomaly_kind(name).severity != "fail"}
    assert warning == {"nonfinite_gradient"}


def test_a_kind_of_another_version_is_named_in_words() -> None:
    """Nothing is claimed of its gradients."""
    assert anomaly_kind("brand_new")[:4] == ("brand_new", "Brand new", "", False)
