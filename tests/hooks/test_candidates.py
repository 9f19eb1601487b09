"""What a calibration tries: every hook that averages, with the usual options."""

from __future__ import annotations

import torch

from hooktrace.capture.hook_options import options_of
from hooktrace.hooks.candidates import candidates


def test_every_hook_that_averages_is_tried() -> None:
    """Cheap ones first, so that what they leave of their time is the others'."""
    assert [one.label for one in candidates()] == [
        *("allreduce", "allgather", "fp16", "bf16"),
        *("quantize-per-tensor", "quantize-per-channel", "quantize-per-channel-128"),
        *("powersgd", "powersgd-rank2", "powersgd-rank4"),
        *("batched-powersgd", "batched-powersgd-rank2"),
    ]


def test_a_candidate_is_what_its_label_says() -> None:
    """In its hook, its state, and what records say of it."""
    found = {one.label: one for one in candidates()}
    assert found["quantize-per-channel-128"].hook.__qualname__ == (
        "quantization_perchannel_hook(bucket_size=128)"
    )
    assert found["quantize-per-channel-128"].options == (("bucket_size", 128),)
    state = found["powersgd-rank4"].make_state(None, start_powerSGD_iter=7)
    assert (state.matrix_approximation_rank, state.start_powerSGD_iter) == (4, 7)
    assert found["powersgd-rank2"].options == (("matrix_approximation_rank", 2),)
    assert (
        dict(options_of(found["powersgd-rank2"].make_state(None)))["matrix_approximation_rank"] == 2
    )


def test_a_working_state_compresses_at_once() -> None:
    """A PowerSGDState begins with a thousand plain steps, which are not what is to be tried."""
    found = {one.label: one for one in candidates()}
    assert not found["powersgd"].make_state(None).compresses
    assert found["powersgd"].working_state(None).compresses


def test_whole_numbers_fit_only_hooks_that_send_them_as_they_are() -> None:
    """A cast of them would say nothing."""
    fits = [one.label for one in candidates() if one.fits(torch.int32)]
    assert fits == ["allreduce", "allgather"]
