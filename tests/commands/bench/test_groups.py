"""The groups of rows: each can be found, and a name that there is not is answered."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hooktrace.commands.bench import groups
from hooktrace.commands.bench.groups import GROUPS, chosen
from hooktrace.records.errors import UsageError


@pytest.mark.parametrize("name", GROUPS)
def test_each_group_is_a_module_that_runs(name: str) -> None:
    """It has a ``run`` with the one option; nothing is imported to see that."""
    path = Path(groups.__file__).with_name(f"{GROUPS[name].module}.py")
    (run,) = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "run"
    ]
    assert [argument.arg for argument in run.args.kwonlyargs] == ["quick"]


def test_without_a_name_all_but_those_on_demand() -> None:
    """What needs Chromium or gigabytes of files is asked for by name."""
    assert set(GROUPS) - set(chosen([])) == {"hooks", "timeline", "report"}


def test_named_groups_come_once_in_the_order_of_their_names() -> None:
    """A name may be said twice."""
    assert list(chosen(["wire", "hooks", "wire"])) == ["wire", "hooks"]


def test_a_wrong_name_is_answered_by_the_right_ones() -> None:
    """The error lists what may be passed."""
    with pytest.raises(UsageError, match=r"'wier'; pass --only per-bucket, .*wire"):
        chosen(["wire", "wier"])
