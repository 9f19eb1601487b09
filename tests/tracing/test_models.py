"""Names of models, of which a job may make new ones for as long as it runs."""

from __future__ import annotations

import logging
import threading

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.testing import FakeBucket
from hooktrace.tracing import models
from hooktrace.tracing.models import TracedModels
from tests.fakes import opaque


def test_names_are_unique_and_need_bounded_memory() -> None:
    """Whether they are asked for or given; those that are remembered are as before."""
    known = TracedModels()
    assert [known.name(None), known.name("net"), known.name("net")] == ["model0", "net", "net#2"]
    count = models._REMEMBERED + 100
    names = [known.name(("net", None)[n % 2]) for n in range(count)]
    assert len(set(names)) == count
    assert len(known._names) == models._REMEMBERED


@pytest.mark.parametrize("wanted", ["net", None])
def test_two_threads_that_trace_at_once_get_two_names(wanted: str | None) -> None:
    """Steps are gathered by name."""
    known = TracedModels()
    found: list[str] = []
    other = threading.Thread(target=lambda: found.append(known.name(wanted)))

    class Names(set[str]):
        """Lets the other thread ask while this one looks whether a name is free."""

        def __contains__(self, name: object) -> bool:
            free = not super().__contains__(name)
            if other.ident is None:
                other.start()
                other.join(0.1)  # without a lock it would come to its end here
            return not free

    known._names = Names()
    found.append(known.name(wanted))
    other.join(60)
    assert len(set(found)) == 2


def test_what_is_so_of_many_models_is_said_of_the_first(caplog: pytest.LogCaptureFixture) -> None:
    """A job that makes models for as long as it runs must not fill its log."""
    with (
        caplog.at_level(logging.WARNING, "hooktrace"),
        Tracer(error="local", align_clocks=False) as tracer,
    ):
        for _ in range(300):
            trace(opaque, tracer=tracer)(None, FakeBucket([torch.zeros(3)]))
    (message,) = [r.getMessage() for r in caplog.records if "not measured" in r.getMessage()]
    assert message.startswith("local error of model0 is not measured: hook ")
    assert "opaque' is opaque, and where it compresses cannot be seen" in message
