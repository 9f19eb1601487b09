"""Names of models, of which a job may make new ones for as long as it runs."""

from __future__ import annotations

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.testing import FakeBucket
from hooktrace.tracing.tracer import TracedModels
from tests.fakes import plain


def test_names_are_unique() -> None:
    """Whether they are asked for or given."""
    known = TracedModels()
    asked = (None, "net", "net", "net#2", "net", None)
    names = [known.name(wanted) for wanted in asked]
    assert names == ["model0", "net", "net#2", "net#2#2", "net#3", "model1"]


def test_what_is_so_of_many_models_is_said_of_the_first(caplog: pytest.LogCaptureFixture) -> None:
    """A job that makes models for as long as it runs must not fill its log."""
    with Tracer(align_clocks=False) as tracer:
        for _ in range(3):
            trace(plain, tracer=tracer)(None, FakeBucket([torch.zeros(3, device="meta")]))
    (message,) = caplog.messages
    assert message.startswith("buckets of model0 are not looked at: torch.accelerator knows no ")
