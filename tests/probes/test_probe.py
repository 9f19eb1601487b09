"""One probe with futures that the test completes: what is handed over, when, and what is kept."""

from __future__ import annotations

import gc
import weakref
from typing import Any

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
        """Leave the tensor, which is then the average."""
        return self.futures[0]

    def gather(self, tensor: torch.Tensor, rows: torch.Tensor) -> Any:
        for row in rows:
            row.copy_(tensor)
        return self.futures[1]


class Probed:
    """A probe of a hook whose result is there, and the future that DDP gets."""

    def __init__(
        self,
        result: torch.Tensor,
        ready: int = 0,
        ranks: int = 2,
        future: Any = None,
        *,
        local: bool = False,
        offset: tuple[int, int] | None = (100, 7),
    ) -> None:
        self.group: Any = Group()
        self.sink: Any = Sink()
        self.sink.offset = offset
        self.ended: list[str | None] = []
        bucket = bucket_of((2, 2), (result.numel() - 4,), dtype=result.dtype)
        bucket.buffer().fill_(1)
        slot = slot_of(bucket)
        self.probe: Any = Probe(
            start_of(slot, 0, bucket, ready),
            ProbeResult(
                slot=slot, step=0, rank=0, ranks=tuple(range(ranks)), local=local, ready=ready
            ),
            self.sink,
            StepChecksums(0, {}),
            self.ended.append,
        )
        self.probe.issuer()(self.group)
        self.future = self.probe.join(future_of(result) if future is None else future)

    def complete(self) -> None:
        """Let the reference and the samples arrive."""
        for future in self.group.futures:
            future.set_result(None)

    @property
    def found(self) -> ProbeResult | None:
        """What was pushed, once, as the drain reads it."""
        if not self.sink.pushed:
            return None
        (found,) = self.sink.pushed
        found.read()
        return found

    @property
    def has_numbers(self) -> bool:
        """Whether what was pushed has them."""
        return self.found is not None and self.found.sums is not None


def test_numbers_come_before_ddp_has_the_result() -> None:
    """Once, and not before the reference is there."""
    result = torch.ones(6)
    checked = Probed(result)
    assert not checked.future.done()
    assert checked.found is None
    checked.complete()
    assert checked.has_numbers
    assert checked.future.value() is result


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_ddp_gets_its_result_whatever_the_comparison_does(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """An error ends the probes and is said; Ctrl-C is not held back by a future left open."""

    def raising(*_: object) -> None:
        raise error("boom")

    monkeypatch.setattr(compare, "measure", raising)
    result = torch.ones(6)
    checked = Probed(result)
    checked.complete()
    assert checked.future.value() is result
    assert checked.found is not None
    assert not checked.has_numbers
    assert checked.ended == (["MemoryError: boom"] if error is MemoryError else [])


def test_a_failed_reference_ends_the_probes_and_not_training() -> None:
    """As where another rank does not come in time."""
    result = torch.ones(6)
    checked = Probed(result)
    checked.group.futures[0].set_exception(RuntimeError("timed out"))
    checked.group.futures[1].set_result(None)
    assert checked.future.value() is result
    assert checked.ended == ["RuntimeError: timed out"]
    assert not checked.has_numbers


@pytest.mark.parametrize("fails", ["nothing", "the reference", "the hook"])
def test_nothing_large_waits_with_the_call(fails: str) -> None:
    """Which keeps its probe until the drain has it; and no cycle keeps either, with the GC off."""
    gc.disable()
    try:
        result: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        checked = Probed(torch.ones(6), future=result)
        if fails == "the hook":
            result.set_exception(ValueError("boom"))
        else:
            result.set_result(torch.ones(6))
        if fails == "the reference":
            checked.group.futures[0].set_exception(RuntimeError("timed out"))
            checked.group.futures[1].set_result(None)
        else:
            checked.complete()
        assert not any(
            isinstance(kept, torch.Tensor | torch._C.Future)
            for kept in vars(checked.probe).values()
        )
        probe = weakref.ref(checked.probe)
        del checked, result
        assert probe() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("numel", [6, 7])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_bucket_of_any_size_is_checked(dtype: torch.dtype, numel: int, ranks: int) -> None:
    """Also of an odd one in a job of one rank, whose message is no whole number of 8 bytes."""
    checked = Probed(torch.ones(numel, dtype=dtype), ranks=ranks)
    checked.complete()
    assert checked.ended == [None]
    assert checked.found is not None
    error = error_record(checked.found)
    assert error is not None
    assert (error.relative_l2, error.reference_l2) == (0.0, pytest.approx(numel**0.5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_average_of_16_bits_is_taken_in_32(dtype: torch.dtype) -> None:
    """Else it would be rounded as the result is, and show no error where there is one."""
    checked = Probed(torch.ones(6, dtype=dtype))
    assert checked.probe._reference.dtype == torch.float32


def test_an_abandoned_probe_says_so_once_and_has_no_numbers() -> None:
    """Whatever arrives of it later; one whose numbers are there is not abandoned any more."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    checked = Probed(torch.ones(6), future=future)
    checked.probe.abandon("full")
    checked.complete()
    future.set_result(torch.ones(6))
    assert (checked.ended, checked.has_numbers) == (["full"], False)
    checked = Probed(torch.ones(6))
    checked.complete()
    checked.probe.abandon("full")
    assert (checked.ended, checked.has_numbers) == ([None], True)


def test_what_the_hook_raised_waits_for_no_reference() -> None:
    """Which may never come; nor does one that comes later harm."""
    checked = Probed(torch.ones(6), future=future_of(ValueError("boom")))
    with pytest.raises(RuntimeError, match="boom"):
        checked.future.wait()
    checked.complete()
    assert checked.ended == []
