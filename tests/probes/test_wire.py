"""What of torch's Flight Recorder is taken for a hook's, on dumps made for the purpose."""

from __future__ import annotations

import pickle
import time
from contextlib import nullcontext
from typing import Any

import pytest

from hooktrace.probes.wire import (
    CallWindow,
    FlightRecorder,
    Issued,
    UnknownError,
    WireSample,
    attribute,
)
from hooktrace.records import Transfer

BACKWARD, WORKER = 1, 2
SAMPLE = WireSample("net", 7, BACKWARD, host_ns=1_000, wall_ns=1_001_000)
"""Wall-clock time is the host's plus a million."""


def entry(at: int, *, record: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of 8 float32 all-reduced at a wall-clock time."""
    return {
        "record_id": record,
        "process_group": ("0", "default_pg"),
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[2, 4]],
        "input_dtypes": ["Float"],
        "time_created_ns": at,
        "thread_id": str(BACKWARD),
        **changes,
    }


def dumped(*entries: dict[str, Any]) -> Any:
    """Return what dumps these records."""
    return lambda *_: pickle.dumps({"entries": list(entries)})


def reading(dump: Any) -> FlightRecorder:
    """Return what reads the dumps of a gloo job."""
    return FlightRecorder({"_dump_fr_trace": dump})


def sent(kind: str, dtype: str, size: int) -> Transfer:
    return Transfer(collective=kind, dtype=dtype, wire_bytes=size)


def issued(at: int, thread: int = BACKWARD, size: int = 4, group: str = "") -> Issued:
    """Return a collective at a time of the host's clock."""
    return Issued(at + 1_000_000, thread, sent("all_reduce", "float32", size), group)


@pytest.mark.parametrize(
    ("changes", "transfer"),
    [
        ({}, sent("all_reduce", "float32", 32)),
        ({"input_dtypes": ["Half"]}, sent("all_reduce", "float16", 16)),
        (
            {"input_sizes": [[3], [5]], "input_dtypes": ["Byte", "Half"]},
            sent("all_reduce", "float16+uint8", 13),
        ),
        ({"input_sizes": [], "input_dtypes": []}, sent("all_reduce", "", 0)),
        ({"input_dtypes": ["Complicated"]}, None),
    ],
)
def test_a_records_bytes(changes: dict[str, Any], transfer: Transfer | None) -> None:
    """Of all inputs, each with its own dtype or all with one; none where a size is not known."""
    found = reading(dumped(entry(5, **changes))).issued(0, 10)
    assert found == [Issued(5, BACKWARD, transfer, "0")]


def test_only_what_hooks_sent_in_the_time_that_was_asked_for() -> None:
    """Both ends included; neither in hooktrace's own group, without a name, nor received."""
    others = entry(7, process_group=("", "")), entry(8, profiling_name="gloo:recv")
    read = reading(dumped(*(entry(at) for at in (4, 5, 9, 10, 11)), *others))
    assert [i.wall_ns for i in read.issued(5, 10)] == [5, 9, 10]


@pytest.mark.parametrize(("at", "first", "known"), [(6, 0, True), (6, 1, False), (4, 90, True)])
def test_a_recorder_that_has_forgotten_the_beginning_knows_nothing(
    at: int, first: int, known: bool
) -> None:
    """Its oldest record is later than the step's beginning, and not the process's first."""
    read = reading(dumped(entry(at, record=first), entry(8, record=first + 1)))
    with nullcontext() if known else pytest.raises(UnknownError, match="has forgotten the step's"):
        assert {i.wall_ns for i in read.issued(5, 10)} == {at, 8} - {4}


@pytest.mark.parametrize(
    ("dump", "why"),
    [
        (lambda *_: 1 / 0, "_dump_fr_trace cannot be read .ZeroDivisionError: division"),
        (dumped(), "is off, or the backend does not report"),
        (lambda *_: pickle.dumps({}), "set TORCH_FR_BUFFER_SIZE=2000"),
        (dumped({"record_id": 0}), "cannot be read .KeyError"),
        (dumped(entry(5) | {"thread_id": None}), "TypeError"),
    ],
    ids=["raises", "off", "nothing", "older format", "no thread"],
)
def test_a_recorder_that_cannot_be_read(dump: Any, why: str) -> None:
    """Nothing is known, and it is said why."""
    with pytest.raises(UnknownError, match=why):
        reading(dump).issued(0, 10)


def test_nccl_has_a_recorder_of_its_own() -> None:
    """What a hook on a device sent is known if that one was heard, whatever gloo's says."""
    gloo, nccl = dumped(entry(6)), dumped(entry(5, profiling_name="nccl:send 0->1"))
    dumps = {"_dump_fr_trace": gloo, "_dump_nccl_trace": nccl}
    found = FlightRecorder(dumps).issued(0, 10, "cuda")
    assert [one.transfer.collective for one in found if one.transfer] == ["send", "all_reduce"]
    for silent, why in (
        ({"_dump_nccl_trace": dumped()}, "is off, or the backend"),
        ({}, "this torch has no Flight Recorder for the hook's backend"),
    ):
        with pytest.raises(UnknownError, match=why):
            FlightRecorder({"_dump_fr_trace": gloo, **silent}).issued(0, 10, "cuda")


@pytest.mark.parametrize("is_long", [False, True])
def test_one_dump_serves_all_steps_that_ended_before_it(
    monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """A later one asks again; but for a recorder as large as to hold up training."""
    monkeypatch.setattr("hooktrace.probes.wire._LONG_NS", 0 if is_long else 1 << 62)
    dumps = []

    def dump(*_: bool) -> bytes:
        dumps.append(time.sleep(0.01))
        return pickle.dumps({"entries": [entry(5)]})

    flight_recorder = reading(dump)
    for _ in range(3):
        assert flight_recorder.issued(0, 10)
    assert len(dumps) == 1
    rarely = pytest.raises(UnknownError, match=r"Recorder took \d+ ms, so it is done rarely")
    with rarely if is_long else nullcontext():
        flight_recorder.issued(0, time.time_ns())
    assert len(dumps) == (1 if is_long else 2)


REDUCED, GATHERED = sent("all_reduce", "float32", 12), sent("all_gather", "uint8", 1)
CALLS = [CallWindow(100, 200, 900), CallWindow(300, 400, 600)]


@pytest.mark.parametrize(
    ("at", "thread", "of_calls", "of_step"),
    [
        (350, BACKWARD, [0, 4], 4),
        (250, BACKWARD, [0, 0], 0),
        (250, WORKER, [4, 0], 4),
        (700, WORKER, [4, 0], 4),
        (500, WORKER, [None, None], 4),
        (350, WORKER, [None, None], 4),
        (950, WORKER, [0, 0], 0),
    ],
)
def test_whose_a_collective_is(
    at: int, thread: int, of_calls: list[int | None], of_step: int
) -> None:
    """By the hook that runs on the thread of backward, else by the one call that is under way."""
    # What tells the group: something of no bytes that the first hook issues itself.
    sents, step, _ = attribute([issued(at, thread), issued(120, size=0)], CALLS, SAMPLE)
    assert [None if s is None else sum(t.wire_bytes for t in s) for s in sents] == of_calls
    assert sum(t.wire_bytes for t in step or ()) == of_step


@pytest.mark.parametrize(
    ("at_work", "of_calls", "of_step", "why"),
    [
        # A user's own come from another thread, on a group that the hook does not use.
        (
            [
                *(issued(150, group="1"), issued(500, WORKER, group="2")),
                issued(700, WORKER, size=8, group="1"),
            ],
            [(REDUCED,), ()],
            (REDUCED,),
            "",
        ),
        # Transfers of one kind are added up, in order.
        (
            [issued(150), Issued(1_000_160, BACKWARD, GATHERED), issued(170), issued(350)],
            [(GATHERED, sent("all_reduce", "float32", 8)), (sent("all_reduce", "float32", 4),)],
            (GATHERED, REDUCED),
            "",
        ),
        # Nothing tells a hook's threads from others.
        (
            [issued(250, WORKER)],
            [None, ()],
            None,
            "the hook issues nothing on the thread of the backward pass",
        ),
        (
            [Issued(1_000_150, BACKWARD, None), issued(350)],
            [None, (sent("all_reduce", "float32", 4),)],
            None,
            "torch's Flight Recorder names a dtype that has no known size",
        ),
    ],
    ids=["others", "one kind", "threads", "no size"],
)
def test_what_calls_and_the_step_sent(
    at_work: list[Issued], of_calls: list[Any], of_step: Any, why: str
) -> None:
    """What is not known leaves its call's sum and the step's unknown, and nothing else's."""
    sents, step, said = attribute(at_work, CALLS, SAMPLE)
    assert (sents, step) == (of_calls, of_step)
    assert (said or "").startswith(why)
