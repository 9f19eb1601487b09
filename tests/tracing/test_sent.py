"""Why it is not known what a hook sent; what is known, on real ranks: ``test_plain_hooks.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace import Tracer, hooks, trace
from hooktrace.staging import group_hooks
from hooktrace.testing import FakeBucket
from tests.fakes import plain


@pytest.mark.parametrize(
    ("hook", "group_hooks_there", "why"),
    [
        (plain, False, "torch before 2.14 does not tell"),
        (plain, True, None),
        (hooks.fp16_compress_wrapper(plain), False, "a plain hook inside another"),
        (hooks.fp16_compress_wrapper(plain), True, "a plain hook inside another"),
    ],
)
def test_what_is_not_seen(
    hook: Any, group_hooks_there: bool, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason stands with every step; a call that torch was not yet asked about has none."""
    monkeypatch.setattr(group_hooks, "available", group_hooks_there)
    monkeypatch.setattr(group_hooks, "watched", {})
    bucket = FakeBucket([torch.zeros(4)], index=0, is_last=True)
    with Tracer(error_every=0, align_clocks=False) as tracer:
        traced = trace(hook, tracer=tracer)
        for _ in range(2):
            traced(None, bucket).wait()
        steps = tracer.steps()
    assert [step.wire_bytes for step in steps] == [None, None]
    for step in steps:
        assert step.sent is None
        assert (step.sent_unknown is None) if why is None else (why in str(step.sent_unknown))
