"""A hook by name and by pickle, and how what cannot be checked is told."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.records.errors import UsageError
from hooktrace.testing.check import check_hook
from hooktrace.testing.check.launch import check
from hooktrace.testing.check.spec import HookSpec, source_of
from tests.distributed import check_hooks

HOOKS = "tests.distributed.check_hooks"


def of_group(group: Any) -> Any:
    return ("state", group)


def of_nothing(group: Any = None) -> Any:
    return ("state", group)


@pytest.mark.parametrize("source", [f"{HOOKS}:averages", source_of(check_hooks.averages, "hook")])
def test_a_hook_is_loaded_by_name_and_by_pickle(source: str | bytes) -> None:
    """And has no state unless one is asked for."""
    loaded = HookSpec(name="h", hook=source).load()
    assert loaded.hook is check_hooks.averages
    assert loaded.new_state("group") is None
    assert not loaded.local


def test_a_name_may_have_dots() -> None:
    """An attribute of an attribute."""
    loaded = HookSpec(name="h", hook="hooktrace.testing.check.spec:HookSpec.load").load()
    assert loaded.hook is HookSpec.load


def test_a_staged_hook_says_itself_that_it_is_local() -> None:
    """As ``trace`` takes it."""
    assert HookSpec(name="h", hook="hooktrace.hooks:noop_hook").load().local


@pytest.mark.parametrize(("name", "group"), [("of_group", "group"), ("of_nothing", None)])
def test_a_state_gets_the_group_where_it_asks_for_one(name: str, group: str | None) -> None:
    """A class such as PowerSGDState, or a function without arguments."""
    spec = HookSpec(name="h", hook=f"{HOOKS}:averages", make_state=f"{__name__}:{name}")
    assert spec.load().new_state("group") == ("state", group)


@pytest.mark.parametrize(
    ("hook", "state", "problem", "remedy"),
    [
        ("no.such:hook", None, "no.such:hook could not be imported", "a hook that is in it"),
        (f"{HOOKS}:missing", None, "has no attribute 'missing'", "a hook that is in it"),
        (f"{HOOKS}:not_callable", None, "the hook of h is a int", "takes (state, bucket)"),
        (f"{HOOKS}:averages", f"{HOOKS}:not_callable", "the state of h is a int", "needs its own"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_a_remedy(
    hook: str, state: str | None, problem: str, remedy: str
) -> None:
    """In the process of the ranks, since no other one imports it."""
    with pytest.raises(UsageError) as caught:
        HookSpec(name="h", hook=hook, make_state=state).load()
    assert problem in str(caught.value)
    assert str(caught.value).endswith(remedy)


def test_a_name_without_a_colon_is_none() -> None:
    """Before any process starts."""
    with pytest.raises(UsageError, match=r"write package\.module:attribute"):
        check_hook("tests.distributed.check_hooks.averages")


def test_a_hook_that_does_not_pickle_must_be_named() -> None:
    """It has to get to another process."""
    with pytest.raises(TypeError, match=r"pass its name as 'package\.module:attribute'"):
        check_hook(lambda state, bucket: None)
    with pytest.raises(TypeError, match="is a int and cannot be called"):
        check_hook(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "remedy"),
    [({"ranks": 0}, "pass 1 or more"), ({"timeout_s": 0.0}, "pass a timeout above 0")],
)
def test_options_out_of_range_are_told(options: dict[str, Any], remedy: str) -> None:
    """Before any process starts."""
    with pytest.raises(UsageError, match=remedy):
        check([], **options)
