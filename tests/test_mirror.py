"""Whoever opens a module finds its test by name: ``hooktrace/a/b.py`` in ``tests/a/test_b.py``.

One part of it may have a test beside that, ``test_b_part.py``.  Small modules may have the test of
their package, or one in a folder of what takes several processes, a browser or a device; which
lines no test reaches ``make coverage`` says.
"""

from __future__ import annotations

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
    "exporters/test_otlp_backends.py": "the OpenTelemetry exporter with real receivers",
    "exporters/test_queries.py": "record files in DuckDB, Polars and pandas",
    "integrations/test_ray.py": "Ray Train, which needs no module of its own here",
    "tracing/test_process.py": "tracers at the end of a process, and in its forked children",
}
"""Tests of several modules at once, and what they are about."""


TESTED = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]


def is_named_for_a_module(test: Path) -> bool:
    """Return whether a test is named for a module or package beside it, or one part of that."""
    folder, name = PACKAGE / test.parent, test.stem.removeprefix("test_")
    beside = [path.stem for path in folder.glob("*.py")]
    return (folder / name).is_dir() or any(f"{name}_".startswith(f"{one}_") for one in beside)


def test_each_test_is_named_for_a_module() -> None:
    """Rename it after its module, or list it in ``CROSS_CUTTING``, which lists no others."""
    own = [test for test in TESTED if test.parts[0] not in PLACES]
    assert {str(test) for test in own if not is_named_for_a_module(test)} == set(CROSS_CUTTING)
