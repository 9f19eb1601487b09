"""The table of settings: what follows it, and what it refuses."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_type_hints

import pytest

from hooktrace import Tracer, exporters
from hooktrace.tracing.options import EXPORTERS, TRACER


def test_signatures_follow_the_table() -> None:
    """A tracer's in names, order, types and defaults; an exporter's in names and defaults."""
    found, hints = inspect.signature(Tracer).parameters.values(), get_type_hints(Tracer.__init__)
    assert [(p.name, p.default) for p in found] == [(s.name, s.default) for s in TRACER]
    for s in TRACER:
        wanted = s.type if s.default is not None else s.type | None
        assert s.type is object or hints[s.name] == wanted, s
    for owner, settings in EXPORTERS.items():
        parameters = inspect.signature(getattr(exporters, owner)).parameters
        for s in filter(lambda s: s.name, settings):
            assert parameters[s.name].default in (s.default, inspect.Parameter.empty), s


@pytest.mark.parametrize(
    ("option", "values", "wanted"),
    [
        ("error_every", (-1, 2.5, "100", None), "a whole number of at least 0"),
        ("ring_capacity", (0, float("inf")), "a whole number of at least 1"),
        ("interval_s", (-1, 0, float("nan"), "1", None), "a number of seconds above 0"),
        ("hang_after_s", (0.0, float("inf"), 1e300), "a number of seconds above 0"),
        ("on_anomaly", ("shout", None), "one of record, warn, raise"),
        ("on_hang", ("explode",), "one of record, warn, dump, abort"),
    ],
)
def test_bad_arguments_of_a_tracer_are_named(option: str, values: Any, wanted: str) -> None:
    """Before it opens anything."""
    for value in values:
        with pytest.raises(ValueError, match=re.escape(f"{option} is {value!r}; pass {wanted}")):
            Tracer(**{option: value})
