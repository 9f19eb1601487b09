"""What is said of a hook as a whole, where something of hooktrace's own fails."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.tracing.traced_hook import _PASSES, _PassCounter
from tests.fakes import plain


@pytest.mark.parametrize("fails", ["clock", "start"])
def test_a_notice_that_fails_does_not_fail_backward(fails: str) -> None:
    """In which the pass is counted; that nothing can be said of the hook is."""
    with Tracer(error_every=0, align_clocks=False) as tracer:
        hook, model = trace(plain, tracer=tracer), mock.Mock(require_backward_grad_sync=True)
        counter = _PassCounter(model, hook.notices)
        counter.handle = mock.Mock()
        with mock.patch.object(tracer, fails, mock.Mock(side_effect=OSError("no clock, thread"))):
            for _ in range(_PASSES + 1):
                counter(torch.zeros(1))
        counter.handle.remove.assert_called_once_with()
    assert tracer.anomalies() == []
    assert tracer.losses() == {"stamp_failed": 1}
