"""Whoever opens a module finds its test: ``hooktrace/a/b.py`` in ``tests/a/test_b.py``, or here.

What shows only on real ranks, in a browser or in a whole run is tested by what users do, and the
tables below say where.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "hooktrace"
PLACES = ("distributed", "browser", "device", "cuda", "docs")
"""Folders of tests that take several processes, a browser or a device, or that are of the docs."""

CROSS_CUTTING = {
    "test_layering.py": "imports between all packages",
    "test_main.py": "the command line, whose module is __main__",
    "test_mirror.py": "the tree of tests",
    "analysis/report/test_any_file.py": "report and export of whatever a file may hold",
    "exporters/test_otlp_backends.py": "the OpenTelemetry exporter with real receivers",
    "exporters/test_queries.py": "record files in DuckDB, Polars and pandas",
    "records/test_codec_fuzz.py": "the codec on damaged files",
    "tracing/test_process.py": "tracers at the end of a process, and in its forked children",
}
"""Tests of several modules at once, and what they are about."""

TESTED_BY = {
    "analysis/perfetto/*": "analysis/perfetto/test_export.py",
    "analysis/report/rules_*": "analysis/report/test_findings.py",
    "analysis/report/*": "analysis/report/test_facts.py, analysis/report/test_command.py",
    "analysis/tensorboard_plugin/*": "analysis/tensorboard_plugin/test_level_of_detail.py, "
    "browser/test_comm_timeline.py",
    "analysis/timeline/*": "analysis/timeline/test_columns.py",
    "capture/*": "tracing/test_assembler.py, distributed/test_training.py, "
    "cuda/test_device_times.py",
    "commands/bench/wire.py": "distributed/test_wire_against_profiler.py",
    "commands/bench/*": "commands/bench/test_table.py, which has the arithmetic; the rest measures",
    "commands/demo/*": "distributed/test_demo.py",
    "exporters/event_file.py": "exporters/test_tensorboard.py",
    "exporters/tensorboard_*": "exporters/test_tensorboard.py",
    "exporters/append_file.py": "exporters/test_record_file.py",
    "exporters/record_*": "exporters/test_record_file.py, exporters/test_retention.py",
    "exporters/otel_*": "exporters/test_opentelemetry.py",
    "exporters/base.py": "tracing/test_fan_out.py",
    "hooks/optimizer.py": "hooks/test_optimizer.py, distributed/test_optimizer_hooks.py",
    "hooks/zero.py": "distributed/test_optimizer_hooks.py",
    "hooks/wrappers.py": "distributed/test_catalogue.py",
    "hooks/*": "distributed/test_parity.py",
    "probes/local.py": "distributed/test_debug.py",
    "probes/model.py": "distributed/test_probes.py",
    "probes/*": "probes/test_probe.py",
    "records/*": "records/test_codec.py",
    "staging/*": "distributed/test_training.py, hooks/test_optimizer.py",
    "testing/check/*": "distributed/test_check.py",
    "testing/fakes.py": "tracing/test_assembler.py",
    "tracing/assembler*": "tracing/test_assembler.py",
    "tracing/queue_model.py": "distributed/test_wire_against_profiler.py",
    "tracing/*_times.py": "tracing/test_assembler.py, cuda/test_device_times.py",
    "tracing/*": "tracing/test_tracer.py, distributed/test_training.py",
}
"""Modules without a test of their name, and the tests that they have; the first line holds."""


def module_of(test: Path) -> Path:
    """Return the path of the module or package that a test is named for."""
    name = test.stem.removeprefix("test_")
    return PACKAGE / test.relative_to(TESTS).parent / name


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.name.startswith("__")]
"""Those with code; what ``__init__`` offers is tested by name."""


def has_test(module: Path) -> bool:
    """Return whether a module has a test of its name, of its package's name, or a listed one."""
    relative = module.relative_to(PACKAGE)
    own = TESTS / relative.parent / f"test_{relative.name}"
    package = TESTS / relative.parent.parent / f"test_{relative.parent.name}.py"
    return own.exists() or package.exists() or any(_meant(module, by) for by in TESTED_BY)


def _meant(module: Path, pattern: str) -> bool:
    return fnmatch(str(module.relative_to(PACKAGE)), pattern)


def test_each_test_is_named_for_a_module() -> None:
    """Rename it after its module, or list it in ``CROSS_CUTTING``."""
    tests = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]
    strays = []
    for test in tests:
        module = module_of(TESTS / test)
        named = module.with_suffix(".py").is_file() or module.is_dir()
        if test.parts[0] not in PLACES and named == (str(test) in CROSS_CUTTING):
            strays.append(str(test))
    assert strays == []


def test_each_module_has_a_test() -> None:
    """Add one of its name, or a line to ``TESTED_BY``."""
    assert [str(m.relative_to(PACKAGE)) for m in MODULES if not has_test(m)] == []


def test_the_tables_are_up_to_date() -> None:
    """What they name is there."""
    tests = [test for line in TESTED_BY.values() for test in line.split(", ") if ".py" in test]
    assert [name for name in [*CROSS_CUTTING, *tests] if not (TESTS / name).is_file()] == []
    unused = [by for by in TESTED_BY if not any(_meant(module, by) for module in MODULES)]
    assert unused == []
