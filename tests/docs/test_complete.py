"""The docs know what the code has, and name nothing that it does not have."""

from __future__ import annotations

import pkgutil
import re
import shlex
from dataclasses import fields
from itertools import takewhile
from typing import Any

import pytest
import typer

import hooktrace
from hooktrace import exporters, hooks
from hooktrace.__main__ import main as command_line
from hooktrace.analysis.report.findings import RULES, UNIT_RULES
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


_NO_HOOKS = {"HookEntry", "catalogue"}
"""What lists the hooks."""
NAMED: dict[str, list[str]] = {
    "exporters.md": [*exporters.__all__, *(field.name for field in fields(exporters.Retention))],
    "hooks.md": [name for name in hooks.__all__ if name not in _NO_HOOKS],
    "report.md": [f"`{rule.__name__}`" for rule in (*RULES, *UNIT_RULES)],
}
"""What a page is to have: exporters, hooks, rules by the names of their functions."""


@pytest.mark.parametrize("page", NAMED)
def test_all_of_a_kind_are_documented(page: str) -> None:
    text = (REPOSITORY / "docs" / page).read_text("utf-8")
    assert not [name for name in NAMED[page] if name not in text]


def test_every_setting_is_documented() -> None:
    sources = "".join(path.read_text("utf-8") for path in REPOSITORY.glob("hooktrace/**/*.py"))
    assert set(_SETTING.findall(DOCS)) == set(_SETTING.findall(sources))


def test_every_public_name_is_in_the_reference() -> None:
    """By the object that it is; two of them are packages, with pages of their own."""
    page = (REPOSITORY / "docs" / "reference" / "api.md").read_text("utf-8")
    named = {pkgutil.resolve_name(path) for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    public = {getattr(hooktrace, name) for name in hooktrace.__all__} - {hooktrace.fsdp, hooks}
    assert named == {*public, hooktrace.fsdp.trace}


def test_every_public_name_has_an_example() -> None:
    """In the reference's code, or in its own docstring."""
    code = "".join(block.text for block in Page(REPOSITORY / "docs/reference/api.md").blocks)
    names = [name for name in hooktrace.__all__ if not re.search(rf"\b{name}\b", code)]
    assert [name for name in names if "::\n" not in getattr(hooktrace, name).__doc__] == []


def test_every_option_is_documented() -> None:
    names = [name for c in COMMANDS.values() for option in c.params for name in option.opts]
    assert not [name for name in names if name.startswith("-") and f"`{name}`" not in DOCS]


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
    *home, last = name.split(".")
    if _FRAMEWORKS & set(home):  # which need not be here
        source = REPOSITORY.joinpath(*home).with_suffix(".py").read_text("utf-8")
        return re.search(rf"^(class|def) {last}\b", source, re.MULTILINE) is not None
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return last in _FRAMEWORKS
    return True


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_python_compiles(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            compile(block.text, str(page), "exec")
