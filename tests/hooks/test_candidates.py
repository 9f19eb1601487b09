"""Every hook that averages, with its usual options."""

from __future__ import annotations

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
    state = found["powersgd-rank4"].make_state(None, start_powerSGD_iter=7)
    assert (state.matrix_approximation_rank, state.start_powerSGD_iter) == (4, 7)
    assert (
        dict(options_of(found["powersgd-rank2"].make_state(None)))["matrix_approximation_rank"] == 2
    )
