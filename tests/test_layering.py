"""Imports point one way, between packages and inside them; reports need no torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import hooktrace

PACKAGE = Path(__file__).resolve().parents[1] / "hooktrace"


def modules() -> dict[str, Path]:
    """Return all modules by dotted name; a package by its own."""
    found = {}
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def public_homes() -> dict[str, str]:
    """Return the module in which each public name lives."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    return {
        alias.name: f"hooktrace.{node.module}" if node.module else f"hooktrace.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }


def imports(module: str) -> set[str]:
    """Return the modules of hooktrace that a module imports when it runs, wherever in it."""
    path = MODULES[module]
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    found: set[str] = set()
    nodes = set(ast.walk(ast.parse(path.read_text())))
    for node in list(nodes):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes -= set(ast.walk(node))
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")
            above = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                if f"{base}.{alias.name}" in MODULES:
                    found.add(f"{base}.{alias.name}")
                elif base == "hooktrace":
                    found.add(HOMES[alias.name])
                elif base in MODULES:
                    found.add(base)
    return found - {module}


HOMES = public_homes()
IMPORTS = {module: imports(module) for module in MODULES}


def entry(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


FOUND: dict[str, set[str]] = {entry(module): set() for module in MODULES}
for _module, _others in IMPORTS.items():
    FOUND[entry(_module)] |= {entry(other) for other in _others} - {entry(_module)}


def test_the_map_says_what_is_imported() -> None:
    """``docs/architecture.md`` has a row for each part, in an order in which imports go up."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8")
    told: dict[str, set[str]] = {}
    for part, said in re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", page, re.MULTILINE):
        whole, _, without = said.replace("`", "").partition(" but ")
        above = set(told) if whole == "all above" else set(whole.split(", ")) - {"nothing"}
        told[part] = above - set(without.split(", "))
    assert told == {part: others for part, others in FOUND.items() if part != "__init__"}


VIEWS = {
    "run": set(),
    "document": set(),
    **{view: {"run", "document"} for view in ("report", "compare", "perfetto", "hang")},
    "tensorboard_plugin": {"run"},
    "frames": {"run", "report"},
}
"""Which packages of ``analysis`` each one imports from: what two views need is the run's."""


def test_views_of_a_run_import_nothing_of_each_other() -> None:
    """But data frames, which hand out the report too."""
    found: dict[str, set[str]] = {view: set() for view in VIEWS}
    inside = "hooktrace.analysis."
    for module, others in IMPORTS.items():
        if module.startswith(inside):
            own = module.removeprefix(inside).split(".")[0]
            named = {o.removeprefix(inside).split(".")[0] for o in others if o.startswith(inside)}
            found[own] |= named - {own}
    assert found == VIEWS


@pytest.mark.parametrize("graph", [FOUND, IMPORTS], ids=["packages", "modules"])
def test_nothing_imports_in_a_circle(graph: dict[str, set[str]]) -> None:
    """Over whatever detour; it raises and names one."""
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        # What a file's reader needs.
        ("\n".join(f"import {m}" for m in MODULES if entry(m) == "records"), {"torch", "numpy"}),
        # What reads files may run where torch is not installed; it does need numpy.
        pytest.param(
            "from hooktrace.analysis import frames, run\n"
            "from hooktrace.analysis.compare import view\n"
            "import hooktrace.analysis.hang\n"
            "from hooktrace.analysis.report import view",
            {"torch"},
            marks=pytest.mark.slow,
        ),
        # A backend is imported when its exporter is made.
        pytest.param(
            "import hooktrace\nfrom hooktrace.exporters import *\n"
            "hooktrace.Tracer, hooktrace.trace, hooktrace.hooks",
            {"typer", "rich"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["records", "analysis", "tracer"],
)
def test_what_is_not_needed_is_not_imported(code: str, heavy: set[str]) -> None:
    assert loaded_with(code, heavy | {"tensorboard", "prometheus_client", "opentelemetry"}) == "[]"


def loaded_with(code: str, names: set[str]) -> str:
    """Return which of some modules are loaded after running code in a fresh interpreter."""
    program = f"import sys\n{code}\nprint(sorted({names!r} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stdout.strip()


def test_every_public_name_is_there() -> None:
    """The lazy names are those of the stub, and a wrong one is an AttributeError."""
    assert set(hooktrace.__all__) == set(HOMES)
    for name in hooktrace.__all__:
        assert getattr(hooktrace, name) is not None
    with pytest.raises(AttributeError, match="Trcer"):
        hooktrace.Trcer  # noqa: B018
