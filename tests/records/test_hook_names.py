"""Advice follows the hooks that there are: torch's, and hooktrace's of the same names."""

from __future__ import annotations

import importlib

import pytest

from hooktrace import hooks
from hooktrace.records.hook_names import AVERAGES, how_to_see
from hooktrace.staging.hook import hook_name
from hooktrace.tracing.ddp_average import ddp_allreduce

TORCH = "torch.distributed.algorithms.ddp_comm_hooks"


def stock_hooks() -> dict[str, str]:
    """Return torch's hooks by the names that records have, and the names that they are public by.

    But for what wraps a hook of one's own, and a base that they share.
    """
    found = {}
    modules = ("default_hooks", "powerSGD_hook", "quantization_hooks", "debugging_hooks")
    for module in (*modules, "post_localSGD_hook"):
        own = importlib.import_module(f"{TORCH}.{module}")
        for name, value in vars(own).items():
            if getattr(value, "__module__", "") != own.__name__ or name.startswith("_"):
                continue
            if name.endswith("_wrapper"):
                found[hook_name(value(own.allreduce_hook))] = name
            elif name.endswith("_hook"):
                found[hook_name(value)] = name
    return found


@pytest.mark.parametrize(("recorded", "public"), stock_hooks().items())
def test_hooktrace_s_own_is_advised_for_torch_s(recorded: str, public: str) -> None:
    assert how_to_see(recorded) == f"use hooktrace.hooks.{public} in place of torch's"
    assert hasattr(hooks, public)


def test_a_hook_of_one_s_own_is_to_be_written() -> None:
    """And averages are called so."""
    assert how_to_see("Trainer.my_hook") == "write it with @hooktrace.staged"
    assert {hook_name(hooks.allreduce_hook), hook_name(ddp_allreduce)} == AVERAGES
