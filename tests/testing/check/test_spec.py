"""A hook by name and by pickle, and how what cannot be checked is told."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace import hooks
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


@pytest.mark.parametrize(
    ("source", "hook", "local"),
    [
        (f"{HOOKS}:averages", check_hooks.averages, False),
        (source_of(check_hooks.averages, "hook"), check_hooks.averages, False),
        ("hooktrace.testing.check.spec:HookSpec.load", HookSpec.load, False),
        ("hooktrace.hooks:noop_hook", hooks.noop_hook, True),  # says so itself
    ],
)
def test_a_hook_is_loaded_by_name_and_by_pickle(
    source: str | bytes, hook: object, local: bool
) -> None:
    """And has no state unless one is asked for; a name may have dots."""
    loaded = HookSpec(name="h", hook=source).load()
    assert (loaded.hook, loaded.local) == (hook, local)
    assert loaded.new_state("group") is None


@pytest.mark.parametrize(("name", "group"), [("of_group", "group"), ("of_nothing", None)])
def test_a_state_gets_the_group_where_it_asks_for_one(name: str, group: str | None) -> None:
    """A class such as PowerSGDState, or a function without arguments."""
    spec = HookSpec(name="h", hook=f"{HOOKS}:averages", make_state=f"{__name__}:{name}")
    assert spec.load().new_state("group") == ("state", group)


@pytest.mark.parametrize(
    ("hook", "state", "problem", "fix"),
    [
        ("no.such:hook", None, "no.such:hook could not be imported", "a hook that is in it"),
        (f"{HOOKS}:missing", None, "has no attribute 'missing'", "a hook that is in it"),
        (
            f"{HOOKS}:not_callable",
            None,
            "not_callable is a int and no hook",
            "takes (state, bucket)",
        ),
        (f"{HOOKS}:averages", f"{HOOKS}:not_callable", "is a int and no state", "needs its own"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_a_fix(
    hook: str, state: str | None, problem: str, fix: str
) -> None:
    """In the process of the ranks, since no other one imports it."""
    with pytest.raises(UsageError) as caught:
        HookSpec(name="h", hook=hook, make_state=state).load()
    assert problem in str(caught.value)
    assert str(caught.value).endswith(fix)


@pytest.mark.parametrize(
    ("hook", "error", "fix"),
    [
        (f"{HOOKS}.averages", UsageError, r"write package\.module:attribute"),
        (lambda state, bucket: None, TypeError, r"pass its name as 'package\.module:attribute'"),
    ],
)
def test_what_cannot_get_to_another_process_is_told(
    hook: Any, error: type[Exception], fix: str
) -> None:
    """Before any process starts."""
    with pytest.raises(error, match=fix):
        check_hook(hook)


@pytest.mark.parametrize(
    ("options", "fix"),
    [({"ranks": 0}, "pass 1 or more"), ({"timeout_s": 0.0}, "pass a timeout above 0")],
)
def test_options_out_of_range_are_told(options: dict[str, Any], fix: str) -> None:
    """Before any process starts."""
    with pytest.raises(UsageError, match=fix):
        check([], **options)
