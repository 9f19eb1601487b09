"""The one driver, where each operation is answered at once: a hook on trial."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest
import torch

from hooktrace.records.errors import HookError
from hooktrace.staging.driver import run_answered, run_synchronously
from hooktrace.staging.operations import Operation


def test_a_hook_on_trial_is_driven_by_the_same_loop() -> None:
    """Each operation is answered at once, and what it gives comes back from its yield."""
    seen = []

    def hook(state: Any, bucket: Any) -> Iterator[Any]:
        seen.append((yield "first"))
        seen.append((yield "second"))
        return torch.ones(2)

    generator: Any = hook(None, None)
    answer: Any = str.upper
    assert torch.equal(run_answered("hook", generator, None, answer), torch.ones(2))
    assert seen == ["FIRST", "SECOND"]


def test_a_hook_on_trial_raises_its_own_errors() -> None:
    """There is no bucket to name and no record to put it on."""

    def hook(state: Any, bucket: Any) -> Iterator[Any]:
        raise LookupError("mine")
        yield

    generator: Any = hook(None, None)
    with pytest.raises(LookupError, match="mine"):
        run_answered("hook", generator, None, lambda _: None)


class Doubled(Operation):
    """Gives twice its tensor, once it is waited for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def start(self) -> Any:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(self.tensor * 2)
        return future

    def result(self, future: Any) -> torch.Tensor:
        return future.value()  # type: ignore[no-any-return]


class Place:
    """Where errors say that the hook was called."""

    @staticmethod
    def index() -> str:
        return "block"


def twice() -> Generator[Operation, torch.Tensor, torch.Tensor]:
    """Double a tensor two times."""
    once = yield Doubled(torch.ones(3))
    return (yield Doubled(once))


def test_a_hook_runs_to_its_end() -> None:
    """Through as many collectives as it likes."""
    assert run_synchronously("twice", twice(), None, Place(), None, 3).tolist() == [4.0] * 3


def test_a_result_of_another_length_is_an_error_that_names_the_hook() -> None:
    """And says what it should be."""
    with pytest.raises(HookError, match=r"(?s)twice.*block.*return a tensor of 4 elements"):
        run_synchronously("twice", twice(), None, Place(), None, 4)


def test_what_a_hook_raises_is_named() -> None:
    """With the unit that it was called for."""

    def fails() -> Generator[Operation, torch.Tensor, torch.Tensor]:
        yield Doubled(torch.ones(1))
        raise ZeroDivisionError("of its own")

    with pytest.raises(HookError, match=r"(?s)fails.*block.*of its own"):
        run_synchronously("fails", fails(), None, Place(), None, 1)
