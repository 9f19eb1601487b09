"""Advice follows the hooks that there are: torch's, and hooktrace's of the same names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
from torch.distributed.algorithms import ddp_comm_hooks

from hooktrace import hooks
from hooktrace.records.hook_names import AVERAGES, how_to_see
from hooktrace.staging.hook import hook_name
from hooktrace.tracing.ddp_average import ddp_allreduce


def stock_hooks() -> Iterator[tuple[str, str]]:
    """Yield torch's hooks by the names that records have, and the names that they are public by.

    But for what wraps a hook of one's own, and a base that they share.
    """
    for name in ("default", "powerSGD", "quantization", "debugging", "post_localSGD"):
        plural = "s" if name in {"default", "quantization", "debugging"} else ""
        own = importlib.import_module(f"{ddp_comm_hooks.__name__}.{name}_hook{plural}")
        for public, value in vars(own).items():
            if getattr(value, "__module__", "") == own.__name__ and not public.startswith("_"):
                if public.endswith("_wrapper"):
                    yield hook_name(value(own.allreduce_hook)), public
                elif public.endswith("_hook"):
                    yield hook_name(value), public


@pytest.mark.parametrize(("recorded", "public"), [*stock_hooks()])
def test_hooktrace_s_own_is_advised_for_torch_s(recorded: str, public: str) -> None:
    assert how_to_see(recorded) == f"use hooktrace.hooks.{public} in place of torch's"
    assert hasattr(hooks, public)


def test_a_hook_of_one_s_own_is_to_be_written() -> None:
    """And averages are called so."""
    assert how_to_see("Trainer.my_hook") == "write it with @hooktrace.staged"
    assert {hook_name(hooks.allreduce_hook), hook_name(ddp_allreduce)} == AVERAGES
