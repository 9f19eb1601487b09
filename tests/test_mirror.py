"""Whoever opens a module finds its test by name: ``hooktrace/a/b.py`` in ``tests/a/test_b.py``.

One part of it may have a test beside that, ``test_b_part.py``.  Or in ``test_b.py`` of a folder of
what takes several processes, a browser or a device.  Modules that only a whole program uses (a
demo, a check, a benchmark) have the test of their package.
"""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "hooktrace"
PLACES = ("distributed", "browser", "device", "cuda", "docs", "dashboards")
"""Folders of tests that take several processes, a browser or a device, or that are of the docs or
of what is in ``dashboards/``."""

CROSS_CUTTING = {
    "test_layering.py": "imports between all packages",
    "test_main.py": "the command line, whose module is __main__",
    "test_mirror.py": "the tree of tests",
    "test_private_names.py": "torch's private names: one home each, and what is without them",
    "analysis/test_golden.py": "what all views say of many jobs",
    "analysis/test_same_answers.py": "which steps count, and who is late, wherever it is shown",
    "analysis/report/test_any_file.py": "report and export of whatever a file may hold",
    "exporters/test_golden.py": "what all backends get of many jobs",
    "exporters/test_otlp_backends.py": "the OpenTelemetry exporter with real receivers",
    "exporters/test_queries.py": "record files in DuckDB, Polars and pandas",
    "integrations/test_ray.py": "Ray Train, which needs no module of its own here",
    "tracing/test_process.py": "tracers at the end of a process, and in its forked children",
}
"""Tests of several modules at once, and what they are about."""


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.name.startswith("__")]
"""Those with code; what ``__init__`` offers is tested by name."""

TESTED = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]


def is_named_for_a_module(test: Path) -> bool:
    """Return whether a test is named for a module or package beside it, or one part of that."""
    folder, name = PACKAGE / test.parent, test.stem.removeprefix("test_")
    beside = [path.stem for path in folder.glob("*.py")]
    return (folder / name).is_dir() or any(f"{name}_".startswith(f"{one}_") for one in beside)


def has_test(module: Path) -> bool:
    """Return whether a module has a test of its name, or its package of the package's."""
    relative = module.relative_to(PACKAGE)
    own, package = f"test_{relative.name}", f"test_{relative.parent.name}.py"
    places = [relative.parent / own, relative.parent.parent / package]
    places += [Path(place, name) for place in PLACES for name in (own, package)]
    return any(place in TESTED for place in places)


def only_declares(module: Path) -> bool:
    """Return whether there is nothing in a module that could be done wrong: types, no statement."""
    functions = [one for one in ast.walk(ast.parse(module.read_text())) if hasattr(one, "returns")]
    return all(
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        for function in functions
        for statement in function.body
    )


def test_each_test_is_named_for_a_module() -> None:
    """Rename it after its module, or list it in ``CROSS_CUTTING``, which lists no others."""
    own = [test for test in TESTED if test.parts[0] not in PLACES]
    assert {str(test) for test in own if not is_named_for_a_module(test)} == set(CROSS_CUTTING)


def test_each_module_has_a_test() -> None:
    """Add one of its name."""
    wanting = [module for module in MODULES if not (has_test(module) or only_declares(module))]
    assert [str(module.relative_to(PACKAGE)) for module in wanting] == []
