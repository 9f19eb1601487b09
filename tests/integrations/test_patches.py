"""What is put around methods of torch's classes, here of one that takes what DDP takes."""

from __future__ import annotations

import pytest
import torch

from hooktrace.integrations.models import hook_asked
from hooktrace.integrations.patches import make_with_cap

MODEL, OTHER = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)


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


def test_a_limit_takes_the_place_of_the_scripts() -> None:
    """Of the models that one is asked for; all else is passed on."""

    class Patched(FakeDDP):
        pass

    make_with_cap(Patched, lambda module: 2.5 if module is MODEL else None)
    assert Patched(MODEL).caps == (2.5, None)
    assert Patched(module=MODEL, bucket_cap_mb_list=[1, 2]).caps == (2.5, None)
    assert Patched(OTHER, None, bucket_cap_mb=7).caps == (7, None)
    with pytest.raises(TypeError):
        Patched()  # type: ignore[call-arg]


def test_a_hook_that_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of all models; what cannot be is left out and named."""
    assert hook_asked() is None
    monkeypatch.setenv("HOOKTRACE_HOOK", "powersgd-rank4")
    found = hook_asked()
    assert found is not None
    assert found.name == "powersgd-rank4"
    monkeypatch.setenv("HOOKTRACE_HOOK", "fp17")
    assert hook_asked() is None
    assert "HOOKTRACE_HOOK=fp17 has no effect; use one of allreduce, " in caplog.text
