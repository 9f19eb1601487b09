"""One probe with futures that the test completes: what is handed over, when, and what is kept."""

from __future__ import annotations

import gc
import weakref
from typing import Any
from unittest import mock

import pytest
import torch

from hooktrace.probes import compare
from hooktrace.probes.probe import Probe
from hooktrace.probes.probe_result import ProbeResult, StepChecksums, error_record
from tests.probes.fakes import Sink, bucket_of, future_of, slot_of, start_of


class Group:
    """A group of ranks that all have the same."""

    def __init__(self) -> None:
        self.futures: list[Any] = [torch.futures.Future(), torch.futures.Future()]

    def average(self, tensor: torch.Tensor) -> Any:
        return self.futures[0]

    def gather(self, tensor: torch.Tensor, rows: torch.Tensor) -> Any:
        for row in rows:
            row.copy_(tensor)
        return self.futures[1]


class Probed:
    """A probe of a hook whose result is there, and the future that DDP gets."""

    def __init__(self, result: torch.Tensor, ranks: int = 2, future: Any = None) -> None:
        self.group: Any = Group()
        self.sink: Any = Sink()
        self.ended: list[str | None] = []
        bucket = bucket_of((2, 2), (result.numel() - 4,), dtype=result.dtype)
        bucket.buffer().fill_(1)
        slot = slot_of(bucket)
        numbers = tuple(range(ranks))
        found = ProbeResult(slot=slot, step=0, rank=0, ranks=numbers, local=False)
        start = start_of(slot, 0, bucket)
        self.probe: Any = Probe(start, found, self.sink, StepChecksums(0, {}), self.ended.append)
        self.probe.issuer()(self.group)
        self.future = self.probe.join(future_of(result) if future is None else future)

    def complete(self, error: Exception | None = None) -> None:
        """Let the reference, or its error, and the samples arrive."""
        reference, samples = self.group.futures
        if error is None:
            reference.set_result(None)
        else:
            reference.set_exception(error)
        samples.set_result(None)

    @property
    def found(self) -> ProbeResult:
        """What was pushed, once, as the drain reads it."""
        (found,) = self.sink.pushed
        found.read()
        assert isinstance(found, ProbeResult)
        return found


@pytest.mark.parametrize(
    ("compared", "reference", "ended"),
    [
        (MemoryError("boom"), None, ["MemoryError: boom"]),
        (KeyboardInterrupt(), None, []),  # is not held back by a future left open
        (None, RuntimeError("timed out"), ["RuntimeError: timed out"]),
    ],
    ids=["error", "Ctrl-C", "no reference"],
)
def test_ddp_gets_its_result_whatever_the_comparison_does(
    monkeypatch: pytest.MonkeyPatch,
    compared: BaseException | None,
    reference: Exception | None,
    ended: list[str],
) -> None:
    """An error, or another rank that does not come in time, ends the probes and is said."""
    if compared is not None:
        monkeypatch.setattr(compare, "measure", mock.Mock(side_effect=compared))
    result = torch.ones(6)
    checked = Probed(result)
    checked.complete(reference)
    assert checked.future.value() is result
    assert checked.found.sums is None
    assert checked.ended == ended


@pytest.mark.parametrize("fails", ["nothing", "the reference", "the hook"])
def test_nothing_large_waits_with_the_call(fails: str) -> None:
    """Which keeps its probe until the drain has it; and no cycle keeps either, with the GC off."""
    gc.disable()
    try:
        error = ValueError("boom")
        checked = Probed(
            torch.ones(6), future=future_of(error if fails == "the hook" else torch.ones(6))
        )
        checked.complete(RuntimeError("timed out") if fails == "the reference" else None)
        kept = vars(checked.probe).values()
        assert not any(isinstance(one, torch.Tensor | torch._C.Future) for one in kept)
        probe = weakref.ref(checked.probe)
        del checked, kept
        assert probe() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("numel", [6, 7])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_bucket_of_any_size_is_checked(dtype: torch.dtype, numel: int, ranks: int) -> None:
    """Also of an odd one in a job of one rank, whose message is no whole number of 8 bytes."""
    checked = Probed(torch.ones(numel, dtype=dtype), ranks=ranks)
    assert checked.probe._reference.dtype == torch.promote_types(dtype, torch.float32)
    assert (checked.future.done(), checked.sink.pushed) == (False, [])
    checked.complete()
    assert (checked.future.done(), checked.ended) == (True, [None])
    error = error_record(checked.found)
    assert error is not None
    assert (error.relative_l2, error.reference_l2) == (0.0, pytest.approx(numel**0.5))


def test_what_the_hook_raised_waits_for_no_reference() -> None:
    """Which may never come; nor does one that comes later harm."""
    checked = Probed(torch.ones(6), future=future_of(ValueError("boom")))
    with pytest.raises(RuntimeError, match="boom"):
        checked.future.wait()
    checked.complete()
    assert checked.ended == []


def test_an_abandoned_probe_has_no_numbers() -> None:
    """Whatever arrives of it later; it says so once."""
    checked = Probed(torch.ones(6))
    checked.probe.abandon("full")
    checked.complete()
    assert (checked.ended, checked.found.sums) == (["full"], None)
