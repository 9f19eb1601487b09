"""Tensors that come to the host in their own time: what they are, and when they may be read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.staging.devices import EventPool, HostCopy


def pool() -> EventPool:
    """Return a pool that makes no event: a CPU needs none."""
    return EventPool(lambda device: pytest.fail("an event was made"))


@pytest.mark.parametrize("order", [1, -1])
def test_what_arrives_is_what_was_sent(order: int) -> None:
    """Of every type and shape, whatever comes before it: single numbers, nothing, parts of rows.

    One number out of a column, as a bucket of one element has in the table of its error.
    """
    sent = {
        "flag": torch.tensor(True),
        "flags": torch.tensor([True, False, True]),
        "half": torch.tensor([1.5, -2.0, 3.0], dtype=torch.float16),
        "none": torch.zeros(0, 6, dtype=torch.float64),
        "sums": torch.randn(2, 6, dtype=torch.float64),
        "checksums": torch.tensor([[2**62, -1]]),
        "column": torch.arange(12, dtype=torch.int32).view(3, 4)[:, 1:3],
        "cell": torch.randn(1, 13)[:, 3],
    }
    names = list(sent)[::order]
    copy = HostCopy({name: sent[name] for name in names}, pool())
    assert copy.has_arrived()
    found = copy.read()
    assert list(found) == names
    for name, tensor in found.items():
        assert tensor.dtype == sent[name].dtype
        assert torch.equal(tensor, sent[name])


def test_it_does_not_change_with_what_was_sent() -> None:
    """What was sent is worked on afterwards."""
    tensor = torch.ones(3)
    copy = HostCopy({"ones": tensor}, pool())
    tensor.zero_()
    assert copy.read()["ones"].tolist() == [1.0, 1.0, 1.0]


class Event:
    """An event that passes when the test says so."""

    def __init__(self, device: torch.device) -> None:
        self.passed = False

    def record(self, stream: Any) -> None:
        """Record anywhere."""

    def query(self) -> bool:
        return self.passed

    def elapsed_time(self, end_event: Any) -> float:
        return 0.0


def test_of_a_device_it_has_arrived_when_its_event_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy goes to pinned memory without blocking, and the event is used again."""
    copies: list[tuple[torch.Tensor, bool]] = []
    pinned = torch.zeros(16, dtype=torch.uint8)
    monkeypatch.setattr("hooktrace.staging.devices.new_pinned", lambda size: pinned[:size])
    monkeypatch.setattr("hooktrace.staging.devices.stream_of", lambda index: None)

    def copy_(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> None:
        copies.append((source, non_blocking))

    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    events = EventPool(Event)
    copy = HostCopy({"two": torch.zeros(2, dtype=torch.float64, device="meta")}, events)
    monkeypatch.undo()
    ((source, non_blocking),) = copies
    assert (source.device.type, non_blocking) == ("meta", True)
    event: Any = copy._event
    assert not copy.has_arrived()
    event.passed = True
    assert copy.has_arrived()
    pinned.view(torch.float64).copy_(torch.tensor([3.0, 4.0]))
    assert copy.read()["two"].tolist() == [3.0, 4.0]
    monkeypatch.setattr("hooktrace.staging.devices.stream_of", lambda index: None)
    assert events.record(torch.device("meta")) is event
