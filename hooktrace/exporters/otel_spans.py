"""Writers that make spans of drafts, with ids that all ranks agree on.

``DirectWriter`` is for a pipeline of hooktrace's own, ``ApiWriter`` for a provider of the
application.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from .otel_drafts import Draft, StepIds

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.sampling import Sampler
    from opentelemetry.trace import Span, SpanContext, Tracer

__all__ = ["ApiWriter", "DirectWriter", "SpanWriter"]

_SAMPLED_RANDOM = 0x03
"""W3C trace flags: sampled, and a trace id whose low 56 bits are uniform, as a hash's are."""


class SpanWriter(Protocol):
    """Turns drafts into spans of one step's trace.

    ``children`` is called only when the step is sampled.  ``rank`` 0 writes the root of the trace;
    the spans of other ranks are children of that root.  With ``detached`` the draft is a child of
    the root on every rank.
    """

    def write(
        self,
        ids: StepIds,
        rank: int,
        draft: Draft,
        children: Callable[[], Iterable[Draft]],
        *,
        detached: bool = False,
    ) -> None:
        """Write the draft and its children."""


class DirectWriter:
    """Makes finished spans for processors of hooktrace's own, at a tenth of the cost of a tracer.

    A tracer's span is built to be changed while it is open (locks, limits, copies); these spans
    are over before they are made.  The sampler is asked once a step, as for a root, so that all
    ranks keep the same steps.  ``emit`` gets each ``ReadableSpan``.
    """

    def __init__(
        self,
        sampler: Sampler,
        resource: Resource,
        version: str,
        emit: Callable[[ReadableSpan], None],
    ) -> None:
        from opentelemetry import context, trace
        from opentelemetry.sdk import trace as sdk_trace
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._trace = trace
        self._sdk = sdk_trace
        self._sampler = sampler
        self._resource = resource
        self._scope = InstrumentationScope("hooktrace", version)
        self._emit = emit
        self._no_parent = context.Context()
        self._unset = trace.Status()
        self._flags = trace.TraceFlags(_SAMPLED_RANDOM)

    def write(
        self,
        ids: StepIds,
        rank: int,
        draft: Draft,
        children: Callable[[], Iterable[Draft]],
        *,
        detached: bool = False,
    ) -> None:
        """Write the draft and its children, if the sampler keeps the step."""
        result = self._sampler.should_sample(
            self._no_parent, ids.trace_id, draft.name, self._trace.SpanKind.INTERNAL,
            draft.attributes, (),
        )  # fmt: skip
        if not result.decision.is_sampled():
            return
        root = self._trace.SpanContext(
            ids.trace_id, ids.root_span_id, rank != 0, self._flags, result.trace_state
        )
        if rank == 0 and not detached:
            own, parent = root, None
        else:
            own, parent = self._child_of(root), root
        for child in children():
            self._write_tree(child, self._child_of(own), own)
        self._write_span(draft, own, parent)

    def _child_of(self, parent: SpanContext) -> SpanContext:
        span_id = random.getrandbits(64) or 1
        return self._trace.SpanContext(
            parent.trace_id, span_id, False, self._flags, parent.trace_state
        )

    def _write_tree(self, draft: Draft, own: SpanContext, parent: SpanContext) -> None:
        for child in draft.children:
            self._write_tree(child, self._child_of(own), own)
        self._write_span(draft, own, parent)

    def _write_span(self, draft: Draft, own: SpanContext, parent: SpanContext | None) -> None:
        status = self._unset
        if draft.error is not None:
            status = self._trace.Status(self._trace.StatusCode.ERROR, draft.error)
        events = [
            self._sdk.Event(event.name, event.attributes, event.time_ns) for event in draft.events
        ]
        self._emit(
            self._sdk.ReadableSpan(
                draft.name,
                context=own,
                parent=parent,
                resource=self._resource,
                attributes=draft.attributes,
                events=events,
                status=status,
                start_time=draft.start_ns,
                end_time=draft.end_ns,
                instrumentation_scope=self._scope,
            )
        )


class _GivenIds:
    """An id generator that hands out the ids of a step's root first, and random ones after."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        span_id, self.span_id = self.span_id, 0
        return span_id or random.getrandbits(64) or 1

    def is_trace_id_random(self) -> bool:
        return True


class ApiWriter:
    """Writes spans through a tracer of the application, so that all of its processors see them.

    With the SDK's tracer the ids of a step's root are given to a private copy of that tracer, and
    the application's keeps its own generator.  Any other tracer gets the trace id by a remote
    parent; there the root is a span that nobody exports.
    """

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import context, trace
        from opentelemetry.sdk.trace import Tracer as SdkTracer

        self._trace = trace
        self._no_parent = context.Context()
        self._given = _GivenIds()
        self._sampler: Sampler | None = None
        self._tracer = tracer
        if isinstance(tracer, SdkTracer):
            own = copy.copy(tracer)
            own.id_generator = self._given  # type: ignore[assignment]  # needs only its methods
            self._sampler = own.sampler
            self._tracer = own

    def write(
        self,
        ids: StepIds,
        rank: int,
        draft: Draft,
        children: Callable[[], Iterable[Draft]],
        *,
        detached: bool = False,
    ) -> None:
        """Write the draft; children only where the application's sampler records it."""
        is_root = rank == 0 and not detached and self._sampler is not None
        if is_root:
            self._given.trace_id, self._given.span_id = ids.trace_id, ids.root_span_id
            parent = self._no_parent
        else:
            self._given.span_id = 0
            parent = self._remote_root(ids, draft)
        span = self._start(draft, parent)
        if span.is_recording():
            inside = self._trace.set_span_in_context(span, self._no_parent)
            for child in children():
                self._write_tree(child, inside)
        span.end(draft.end_ns)

    def _remote_root(self, ids: StepIds, draft: Draft) -> Context:
        """Return a context in which rank 0's step span is the remote parent.

        A sampler follows its parent's decision, so the flag must be what rank 0's is.
        """
        flags, state = _SAMPLED_RANDOM, None
        if self._sampler is not None:
            result = self._sampler.should_sample(
                self._no_parent, ids.trace_id, draft.name, self._trace.SpanKind.INTERNAL,
                draft.attributes, (),
            )  # fmt: skip
            flags = _SAMPLED_RANDOM if result.decision.is_sampled() else _SAMPLED_RANDOM - 1
            state = result.trace_state
        root = self._trace.SpanContext(
            ids.trace_id, ids.root_span_id, True, self._trace.TraceFlags(flags), state
        )
        return self._trace.set_span_in_context(self._trace.NonRecordingSpan(root), self._no_parent)

    def _write_tree(self, draft: Draft, parent: Context) -> None:
        span = self._start(draft, parent)
        if draft.children and span.is_recording():
            inside = self._trace.set_span_in_context(span, self._no_parent)
            for child in draft.children:
                self._write_tree(child, inside)
        span.end(draft.end_ns)

    def _start(self, draft: Draft, parent: Context) -> Span:
        span = self._tracer.start_span(
            draft.name, parent, attributes=draft.attributes, start_time=draft.start_ns
        )
        for event in draft.events:
            span.add_event(event.name, event.attributes, event.time_ns)
        if draft.error is not None:
            status = self._trace.Status(self._trace.StatusCode.ERROR, draft.error)
            span.set_status(status)
        return span
