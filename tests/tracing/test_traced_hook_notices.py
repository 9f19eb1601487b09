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
        parameter = torch.nn.Parameter(torch.zeros(1))
        counter = _PassCounter(model, parameter, hook.notices)
        with mock.patch.object(tracer, fails, mock.Mock(side_effect=OSError("no clock, thread"))):
            for _ in range(_PASSES + 1):
                counter(parameter)
        assert not parameter._post_accumulate_grad_hooks  # no pass is counted any more
    assert tracer.anomalies() == []
    assert tracer.losses() == {"stamp_failed": 1}
