"""Reading spans in tests: the only one of a name, its attributes, its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

Export = Callable[..., list[ReadableSpan]]
"""Exports batches, one exporter a batch, and returns the spans."""


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    [found] = [span for span in spans if span.name == name]
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def exported_steps(spans: Sequence[ReadableSpan], rank: int) -> list[int]:
    """Return the steps of which a rank has spans; rank 0's are roots."""
    steps = [s for s in spans if s.name == "ddp step" and (s.parent is None) == (rank == 0)]
    return [int(attributes(span)["hooktrace.step"]) for span in steps]
