"""An answer as programs get it."""

from __future__ import annotations

from hooktrace.analysis.whatif.answer import answer_fields

from .answers import answer, predicted


def test_programs_get_the_fields() -> None:
    """Of the choice, and of what it gives."""
    content = answer_fields(answer(predicted(210.0, "fp16", 5.0, error=3e-4)))
    (one,) = content["predictions"]
    assert {k: one[k] for k in ("hook", "bucket_cap_mb", "ranks", "step_ms", "error", "lossy")} == {
        "hook": "fp16", "bucket_cap_mb": 5.0, "ranks": 2, "step_ms": 210.0, "error": 3e-4,
        "lossy": True,
    }  # fmt: skip
    assert content["measured"]["step_ms"] == 402.0
    assert content["replayed"]["network"]["is_fitted"]
