"""All views say of each job what they said before; how to change that: ``golden.py``."""

from __future__ import annotations

import pytest

from tests.analysis.golden import HERE, names, path_of, said_of


@pytest.mark.parametrize("name", names())
def test_what_is_said_of_a_job(name: str) -> None:
    """A difference is shown as a user will see it."""
    assert said_of(name).splitlines() == path_of(name).read_text("utf-8").splitlines()


def test_each_file_has_its_job() -> None:
    """Nothing is left of jobs that went."""
    assert {path.name for path in HERE.iterdir()} == {path_of(name).name for name in names()}
