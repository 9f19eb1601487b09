"""The model that is meant is changed, and no other one; on real ranks: distributed/test_script."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.integrations.chosen import (
    VARIABLE,
    Chosen,
    chosen,
    hook_for,
    make_with_cap,
    shapes_key,
)

MODEL = torch.nn.Linear(3, 2)
OTHER = torch.nn.Linear(2, 3)
SHAPES = shapes_key([(2,), (2, 3)])


class FakeDDP:
    """Takes what DDP takes, of newer torch too."""

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: object = None,
        *,
        bucket_cap_mb: float | None = None,
        bucket_cap_mb_list: object = None,
    ) -> None:
        self.caps = bucket_cap_mb, bucket_cap_mb_list


def choose(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Chosen:
    wanted = Chosen(**{"shapes": SHAPES, "hook": "powersgd-rank4", "bucket_cap_mb": 2.5} | changed)
    monkeypatch.setenv(VARIABLE, wanted.encoded())
    return wanted


def test_a_model_is_known_by_the_shapes_that_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order; what is frozen, or left out of DDP, does not count."""
    assert chosen() is None
    wanted = choose(monkeypatch)
    assert chosen() == wanted
    assert wanted.is_of(MODEL)
    assert not wanted.is_of(OTHER)
    assert not wanted.is_of(torch.nn.Linear(6, 1))
    both = torch.nn.ModuleDict({"model": MODEL, "frozen": torch.nn.Linear(5, 5)})
    assert not wanted.is_of(both)
    both["frozen"].requires_grad_(False)
    assert wanted.is_of(both)
    both["frozen"].requires_grad_(True)
    both._ddp_params_and_buffers_to_ignore = {"frozen.weight", "frozen.bias"}  # type: ignore[assignment]
    assert wanted.is_of(both)


def test_the_hook_of_that_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """None where none was chosen, and of other models."""
    assert hook_for(MODEL) is None
    choose(monkeypatch)
    found = hook_for(MODEL)
    assert found is not None
    assert found.label == "powersgd-rank4"
    assert hook_for(OTHER) is None
    choose(monkeypatch, hook=None)
    assert hook_for(MODEL) is None


def test_the_limit_of_that_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of whatever limit the script gives; all else is passed on."""

    class Patched(FakeDDP):
        pass

    make_with_cap(Patched)
    assert Patched(MODEL, bucket_cap_mb=7).caps == (7, None)
    choose(monkeypatch)
    assert Patched(MODEL).caps == (2.5, None)
    assert Patched(module=MODEL, bucket_cap_mb_list=[1, 2]).caps == (2.5, None)
    assert Patched(OTHER, None, bucket_cap_mb=7).caps == (7, None)
    choose(monkeypatch, bucket_cap_mb=None)
    assert Patched(MODEL, bucket_cap_mb=7).caps == (7, None)
    with pytest.raises(TypeError):
        Patched()  # type: ignore[call-arg]
