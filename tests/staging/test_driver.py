"""The one driver, where each operation is answered at once: a hook on trial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hooktrace.staging.driver import run_answered


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
