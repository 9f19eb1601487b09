"""The model that is meant is changed, and no other one; on real ranks: distributed/test_tune.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.integrations.chosen import CAP, HOOK, hook_asked, make_with_cap
from hooktrace.integrations.tuning.plan import MEASURED, Plan, cap_of, plan, shapes_key

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


def ask(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Plan:
    wanted = Plan(
        "folder", 100, **{"shapes": SHAPES, "hooks": ("fp16", "bf16"), "cap": 2.5} | changed
    )
    monkeypatch.setenv(MEASURED, wanted.encoded())
    return wanted


def test_a_model_is_known_by_the_shapes_that_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order; what is frozen, or left out of DDP, does not count."""
    assert plan() is None
    wanted = ask(monkeypatch)
    assert plan() == wanted
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


def test_the_limit_of_that_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of whatever limit the script gives; all else is passed on."""

    class Patched(FakeDDP):
        pass

    ask(monkeypatch)
    make_with_cap(Patched, cap_of)
    assert Patched(MODEL).caps == (2.5, None)
    assert Patched(module=MODEL, bucket_cap_mb_list=[1, 2]).caps == (2.5, None)
    assert Patched(OTHER, None, bucket_cap_mb=7).caps == (7, None)
    ask(monkeypatch, cap=None)
    assert Patched(MODEL, bucket_cap_mb=7).caps == (7, None)
    with pytest.raises(TypeError):
        Patched()  # type: ignore[call-arg]


def test_a_limit_and_a_hook_that_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of all models; what cannot be is left out and named."""

    class Patched(FakeDDP):
        pass

    make_with_cap(Patched)
    monkeypatch.setenv(CAP, "3.5")
    assert Patched(OTHER, None, bucket_cap_mb=7).caps == (3.5, None)
    monkeypatch.setenv(CAP, "large")
    assert Patched(OTHER, None, bucket_cap_mb=7).caps == (7, None)
    assert "HOOKTRACE_BUCKET_CAP_MB=large is no number of MB" in caplog.text
    assert hook_asked() is None
    monkeypatch.setenv(HOOK, "powersgd-rank4")
    found = hook_asked()
    assert found is not None
    assert found.label == "powersgd-rank4"
    monkeypatch.setenv(HOOK, "fp17")
    assert hook_asked() is None
    assert "HOOKTRACE_HOOK=fp17 is left out; it is one of allreduce, " in caplog.text
