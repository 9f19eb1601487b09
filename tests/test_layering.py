"""Imports point downwards only, and what must not need torch does not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hooktrace

PACKAGE = Path(__file__).resolve().parents[1] / "hooktrace"

LAYERS = (
    {"intervals", "errors"},
    {"records", "ring", "timing", "lane"},
    {"summary", "metrics", "trace_format", "store", "groups"},
    {"calls", "collectives", "exporters", "timeline"},
    {"tensorboard_plugin"},
    {"layout", "contract", "report"},
    {"chain", "compiled", "probes", "call_times"},
    {"record_makers"},
    {"driver", "assemble"},
    {"drain", "job", "clocks"},
    {"settings", "tracer", "silence"},
    {"wrapper", "compose"},
    {"hooks"},
    {"__init__"},
    {"check"},
    {"testing"},
    {"demo", "bench"},
    {"cli"},
    {"__main__"},
)
"""From the bottom up: a module imports from its own layer or below."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# For type checkers only: a call knows the shape of its slot, a model of its probes.
UPWARD = {("calls", "layout"), ("layout", "probes")}


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """Return the top-level modules of hooktrace that a file imports."""
    parts = ("hooktrace", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            base = list(parts[: len(parts) - node.level]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            head, *rest = name.split(".")
            if head == "hooktrace":
                known = [r for r in rest[:1] if r in LEVEL]
                found.add(known[0] if known else "__init__")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_imports_point_downwards(path: Path) -> None:
    """No module imports from a layer above its own."""
    module = module_of(path)
    assert module in LEVEL, f"{module} has no layer; give it one in LAYERS"
    upward = {
        (module, other)
        for other in imported_modules(path) - {module}
        if LEVEL[other] > LEVEL[module]
    }
    assert upward - UPWARD == set()


@pytest.mark.parametrize("module", ["records", "intervals", "summary", "metrics", "trace_format"])
def test_records_need_no_torch(module: str) -> None:
    """The modules that reports are made of import neither torch nor a backend's library."""
    code = f"""
import sys
import hooktrace.{module}
heavy = {{"torch", "tensorboard", "prometheus_client", "opentelemetry", "numpy"}}
print(sorted(heavy & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["timeline", "report", "report.command"])
def test_reports_need_no_torch(module: str) -> None:
    """What reads files may run where torch is not installed; it does need numpy."""
    code = f"""
import sys
import hooktrace.{module}
heavy = {{"torch", "tensorboard", "prometheus_client", "opentelemetry"}}
print(sorted(heavy & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == "[]"


def test_backends_are_imported_when_their_exporter_is_made() -> None:
    """``import hooktrace`` alone loads no backend."""
    code = """
import sys, hooktrace, hooktrace.exporters
hooktrace.Tracer, hooktrace.trace, hooktrace.hooks
backends = {"tensorboard", "prometheus_client", "opentelemetry", "typer", "rich"}
print(sorted(backends & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    """The lazy names are those of ``__all__``, and a wrong one is an AttributeError."""
    for name in hooktrace.__all__:
        assert getattr(hooktrace, name) is not None
    assert set(hooktrace.__all__) == {*hooktrace._HOMES, "hooks"}
    with pytest.raises(AttributeError, match="no attribute 'Trcer'"):
        hooktrace.Trcer  # noqa: B018
