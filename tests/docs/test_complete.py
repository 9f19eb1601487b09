"""The docs know what the code has, and name nothing that it does not have."""

from __future__ import annotations

import importlib
import re
import shlex
import tomllib
from dataclasses import fields
from functools import reduce
from itertools import takewhile
from typing import Any

import pytest
import typer

import hooktrace
from hooktrace import exporters, hooks
from hooktrace.__main__ import main as command_line
from hooktrace.analysis.report.findings import RULES, UNIT_RULES
from hooktrace.exporters.opentelemetry import SPAN_RETENTION
from hooktrace.records.metrics import METRICS

from ..distributed.harness import REPOSITORY
from .pages import DOCS, PAGES, Page

_SETTING = re.compile(r"\bHOOKTRACE_(?!TEST_)[A-Z][A-Z_]*[A-Z]\b")
_SERIES = {"counter": ("_total",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}
_PATH = re.compile(r"(?<![\w./])(?:hooktrace|tests|examples|docs|dashboards)/[\w/]*(?:\w\.\w+|/)")
_FRAMEWORKS = {"accelerate", "lightning", "transformers"}
_PLACEHOLDERS = {"hooktrace/a/b.py", "tests/a/test_b.py", "tests/a/test_b_part.py"}
_OTHER_NAMES = {
    "hooktrace.rank", "hooktrace.left_out.steps", "hooktrace.unit.name", "hooktrace.exposed_ns",
}  # fmt: skip
"""What look like names of the package and are attributes in OpenTelemetry."""

COMMANDS: dict[str, Any] = typer.main.get_command(command_line).commands  # type: ignore[attr-defined]


def test_every_exporter_is_documented() -> None:
    page = (REPOSITORY / "docs" / "exporters.md").read_text("utf-8")
    assert not [name for name in exporters.__all__ if name not in page]
    assert not [field.name for field in fields(exporters.Retention) if field.name not in page]


def test_how_many_steps_have_spans() -> None:
    page = (REPOSITORY / "docs" / "exporters.md").read_text("utf-8")
    assert f"the first {SPAN_RETENTION.first_steps} steps of a rebuild" in page
    assert f"every {SPAN_RETENTION.window_every}th by number" in page


def test_every_setting_is_documented() -> None:
    sources = "".join(path.read_text("utf-8") for path in REPOSITORY.glob("hooktrace/**/*.py"))
    assert set(_SETTING.findall(DOCS)) == set(_SETTING.findall(sources))


def test_every_hook_is_documented() -> None:
    page = (REPOSITORY / "docs" / "hooks.md").read_text("utf-8")
    listing = {"HookEntry", "catalogue"}  # what lists the hooks
    assert not [name for name in set(hooks.__all__) - listing if name not in page]


def test_every_dependency_is_documented() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    page = (REPOSITORY / "docs" / "quickstart.md").read_text("utf-8")
    extras = {k: v for k, v in project["optional-dependencies"].items() if k not in ("dev", "docs")}
    for extra, needed in {"": project["dependencies"], **extras}.items():
        (row,) = [
            line for line in page.splitlines() if line.startswith(f"| {_installing(extra)} |")
        ]
        names = [re.split(r"[>=<\[]", package)[0] for package in needed]
        assert not [name for name in names if f"`{name}`" not in row and name != "hooktrace"]


def _installing(extra: str) -> str:
    return f"`pip install -e '.[{extra}]'`" if extra else "`pip install -e .`"


def test_readers_are_of_the_version_that_is_tried() -> None:
    """As the frameworks in the generated table are (``test_frameworks.py``)."""
    pinned = (REPOSITORY / ".ci/frameworks.txt").read_text("utf-8")
    (version,) = re.findall(r"^distributed==(.*)$", pinned, re.MULTILINE)
    assert f"distributed {version}" in (REPOSITORY / "docs" / "report.md").read_text("utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    """By the object that it is; two of them are packages, with pages of their own."""
    page = (REPOSITORY / "docs" / "reference" / "api.md").read_text("utf-8")
    named = {_named(path) for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    public = {
        getattr(hooktrace, name) for name in hooktrace.__all__ if name not in ("fsdp", "hooks")
    }
    assert named == {*public, hooktrace.fsdp.trace}


def _named(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_option_is_documented() -> None:
    names = [name for c in COMMANDS.values() for option in c.params for name in option.opts]
    assert not [name for name in names if name.startswith("-") and f"`{name}`" not in DOCS]


def test_every_rule_is_documented() -> None:
    """Under the name of its function."""
    page = (REPOSITORY / "docs" / "report.md").read_text("utf-8")
    assert not [rule.__name__ for rule in (*RULES, *UNIT_RULES) if f"`{rule.__name__}`" not in page]


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_commands_exist(page: Page) -> None:
    """Each command of hooktrace is one, with options that it has; each make target is one."""
    targets = re.findall(r"^([\w.-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
    for command in [*page.commands, *page.codes]:
        if command.startswith("hooktrace "):
            _check_command(command)
        if command.startswith("make "):
            assert command.split()[1] in targets, command


def _check_command(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    if name in ("--help", "COMMAND"):
        return
    known = {opt for option in COMMANDS[name].params for opt in option.opts} | {"--help"}
    own = takewhile(lambda argument: argument != "--", arguments)  # another command's come after
    assert not [a for a in own if a.startswith("-") and a not in known], line


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_names_exist(page: Page) -> None:
    """Each ``hooktrace.a.b`` can be imported, each file is there, each metric in the table."""
    text = "\n".join([*page.codes, *(block.text for block in page.blocks)])
    otel = {metric.otel_name for metric in METRICS} | _OTHER_NAMES
    for name in set(re.findall(r"(?<![\w./])hooktrace(?:\.[A-Za-z_]\w*)+(?![\w./])", text)) - otel:
        assert _exists(name), name
    for path in set(_PATH.findall(text)) - _PLACEHOLDERS:
        assert (REPOSITORY / path).exists(), path
    series = {
        metric.name + suffix for metric in METRICS for suffix in _SERIES.get(metric.kind, ("",))
    } | {metric.name for metric in METRICS}
    beginnings = {"hooktrace_", "hooktrace_job_", "hooktrace_unit_"}
    assert not set(re.findall(r"\bhooktrace_[a-z_]+\b", text)) - series - beginnings


def _exists(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as missing:
            if missing.name in _FRAMEWORKS:
                return _declares(parts)
            continue
        try:
            reduce(getattr, parts[count:], module)
        except AttributeError:
            return False
        return True
    return False


def _declares(parts: list[str]) -> bool:
    """Return whether the module of a framework that is not here is one, or declares a name."""
    if REPOSITORY.joinpath(*parts).with_suffix(".py").exists():
        return True
    source = REPOSITORY.joinpath(*parts[:-1]).with_suffix(".py").read_text("utf-8")
    return re.search(rf"^(class|def) {parts[-1]}\b", source, re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_python_compiles(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            compile(block.text, str(page), "exec")


def test_wrong_names_are_found() -> None:
    """The checks above can fail."""
    assert _exists("hooktrace.hooks.allreduce_hook")
    assert not _exists("hooktrace.hooks.no_such_hook")
    assert not _exists("hooktrace.integrations.accelerate.no_such_name")
    with pytest.raises(AssertionError, match="--no-such-option"):
        _check_command("hooktrace demo --no-such-option")
