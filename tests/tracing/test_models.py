"""Names of models, of which a job may make new ones for as long as it runs."""

from __future__ import annotations

from hooktrace.tracing import models
from hooktrace.tracing.models import TracedModels


def test_names_are_unique_and_need_bounded_memory() -> None:
    """Whether they are asked for or given; those that are remembered are as before."""
    known = TracedModels()
    assert [known.name(None), known.name("net"), known.name("net")] == ["model0", "net", "net#2"]
    count = models._REMEMBERED + 100
    names = [known.name(("net", None)[n % 2]) for n in range(count)]
    assert len(set(names)) == count
    assert len(known._names) == models._REMEMBERED
