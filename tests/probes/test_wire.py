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


def recorder(*entries: dict[str, Any]) -> FlightRecorder:
    """Return a recorder with these records."""
    return reading(lambda *_: pickle.dumps({"entries": list(entries)}))


def reading(dump: Any) -> FlightRecorder:
    """Return what reads the dumps of a gloo job."""
    return FlightRecorder({"_dump_fr_trace": dump})


def sent(kind: str, dtype: str, size: int) -> Transfer:
    """Return a transfer."""
    return Transfer(collective=kind, dtype=dtype, wire_bytes=size)


def issued(at: int, thread: int = BACKWARD, size: int = 4) -> Issued:
    """Return a collective at a time of the host's clock."""
    return Issued(at + 1_000_000, thread, sent("all_reduce", "float32", size))


@pytest.mark.parametrize(
    ("changes", "transfer"),
    [
        ({}, sent("all_reduce", "float32", 32)),
        ({"input_dtypes": ["Half"]}, sent("all_reduce", "float16", 16)),
        ({"profiling_name": "nccl:all_gather"}, sent("all_gather", "float32", 32)),
        ({"input_sizes": [[3], [5]]}, sent("all_reduce", "float32", 32)),
        (
            {"input_sizes": [[3], [5]], "input_dtypes": ["Byte", "Half"]},
            sent("all_reduce", "float16+uint8", 13),
        ),
        ({"input_sizes": [[]]}, sent("all_reduce", "float32", 4)),
        ({"input_sizes": [], "input_dtypes": []}, sent("all_reduce", "", 0)),
        ({"input_dtypes": ["Complicated"]}, None),
    ],
)
def test_a_records_bytes(changes: dict[str, Any], transfer: Transfer | None) -> None:
    """Of all inputs, each with its own dtype or all with one; none where a size is not known."""
    found = recorder(entry(5, **changes)).issued(0, 10)
    assert found == [Issued(5, BACKWARD, transfer, "0")]


@pytest.mark.parametrize(
    "changes", [{"process_group": ("", "")}, {"profiling_name": "gloo:recv"}], ids=str
)
def test_what_is_not_sent_by_a_hook(changes: dict[str, Any]) -> None:
    """The group of hooktrace's own has no name in torch; what is received was sent by others."""
    assert recorder(entry(5, **changes)).issued(0, 10) == []


def test_only_the_time_that_was_asked_for() -> None:
    """Both ends included."""
    found = recorder(*(entry(at) for at in (4, 5, 9, 10, 11))).issued(5, 10)
    assert [i.wall_ns for i in found or ()] == [5, 9, 10]


@pytest.mark.parametrize(("first", "known"), [(0, True), (1, False)])
def test_a_recorder_that_has_forgotten_the_beginning_knows_nothing(first: int, known: bool) -> None:
    """Its oldest record is later than the step's beginning, and not the process's first."""
    read = recorder(entry(6, record=first), entry(8, record=first + 1))
    with nullcontext() if known else pytest.raises(UnknownError, match="has forgotten the step's"):
        assert len(read.issued(5, 10)) == 2


def test_records_that_reach_back_far_enough_are_known() -> None:
    """Though the process's first ones are gone."""
    assert len(recorder(entry(4, record=90), entry(8, record=91)).issued(5, 10)) == 1


def _raises(*_: bool) -> bytes:
    raise RuntimeError("off")


@pytest.mark.parametrize(
    ("dump", "why"),
    [
        (_raises, "_dump_fr_trace cannot be read .RuntimeError: off"),
        (lambda *_: pickle.dumps({"entries": []}), "is off, or the backend does not report"),
        (lambda *_: pickle.dumps({}), "set TORCH_FR_BUFFER_SIZE=2000"),
        (lambda *_: pickle.dumps({"entries": [{"record_id": 0}]}), "cannot be read .KeyError"),
        (lambda *_: pickle.dumps({"entries": [entry(5) | {"thread_id": None}]}), "TypeError"),
    ],
    ids=["raises", "off", "nothing", "older format", "no thread"],
)
def test_a_recorder_that_cannot_be_read(dump: Any, why: str) -> None:
    """Nothing is known, and it is said why."""
    with pytest.raises(UnknownError, match=why):
        reading(dump).issued(0, 10)


def test_nccl_has_a_recorder_of_its_own() -> None:
    """What a hook on a device sent is known if that one was heard, whatever gloo's says."""
    gloo = pickle.dumps({"entries": [entry(6)]})
    nccl = pickle.dumps({"entries": [entry(5, profiling_name="nccl:send 0->1")]})
    dumps = {"_dump_fr_trace": lambda *_: gloo, "_dump_nccl_trace": lambda *_: nccl}
    found = FlightRecorder(dumps).issued(0, 10, "cuda")
    assert [one.transfer.collective for one in found if one.transfer] == ["send", "all_reduce"]
    for silent, why in (
        ({"_dump_nccl_trace": lambda *_: pickle.dumps({"entries": []})}, "is off, or the backend"),
        ({}, "this torch has no Flight Recorder for the hook's backend"),
    ):
        with pytest.raises(UnknownError, match=why):
            FlightRecorder({"_dump_fr_trace": lambda *_: gloo, **silent}).issued(0, 10, "cuda")


def test_one_dump_serves_all_steps_that_ended_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later one asks again, however long the dump took on a busy machine."""
    monkeypatch.setattr("hooktrace.probes.wire._LONG_NS", 1 << 62)
    dumps = []

    def dump(*_: bool) -> bytes:
        dumps.append(time.time_ns())
        return pickle.dumps({"entries": [entry(5)]})

    flight_recorder = reading(dump)
    for _ in range(3):
        assert flight_recorder.issued(0, 10)
    assert len(dumps) == 1
    flight_recorder.issued(0, time.time_ns())
    assert len(dumps) == 2


CALLS = [CallWindow(100, 200, 900), CallWindow(300, 400, 600)]


@pytest.mark.parametrize(
    ("at", "thread", "of_calls", "of_step"),
    [
        (150, BACKWARD, [4, 0], 4),
        (350, BACKWARD, [0, 4], 4),
        (250, BACKWARD, [0, 0], 0),
        (250, WORKER, [4, 0], 4),
        (700, WORKER, [4, 0], 4),
        (500, WORKER, [None, None], 4),
        (350, WORKER, [None, None], 4),
        (950, WORKER, [0, 0], 0),
        (50, BACKWARD, [0, 0], 0),
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


def test_a_users_own_collectives_are_not_the_hooks() -> None:
    """They come from another thread, on a group that the hook does not use."""
    own = issued(150)._replace(group="1")
    metrics = issued(500, WORKER)._replace(group="2")
    callback = issued(700, WORKER, size=8)._replace(group="1")
    sents, step, _ = attribute([own, metrics, callback], CALLS, SAMPLE)
    assert sents == [(sent("all_reduce", "float32", 12),), ()]
    assert step == (sent("all_reduce", "float32", 12),)


def test_a_hook_that_sends_from_threads_only_is_not_known() -> None:
    """Nothing tells its threads from others."""
    sents, step, why = attribute([issued(250, WORKER)], CALLS, SAMPLE)
    assert sents == [None, ()]
    assert step is None
    assert why is not None
    assert why.startswith("the hook issues nothing on the thread of the backward pass")


def test_a_recorder_that_takes_long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand times as long: it may be as large as its owner likes."""
    monkeypatch.setattr("hooktrace.probes.wire._LONG_NS", 0)
    dumps = []

    def dump(*_: bool) -> bytes:
        dumps.append(time.sleep(0.01))
        return pickle.dumps({"entries": [entry(5)]})

    flight_recorder = reading(dump)
    assert flight_recorder.issued(0, 10)
    with pytest.raises(UnknownError, match=r"Recorder took \d+ ms, so it is done rarely"):
        flight_recorder.issued(0, time.time_ns())
    assert len(dumps) == 1


def test_transfers_of_one_kind_are_added_up() -> None:
    """By collective and dtype, in order."""
    other = Issued(1_000_160, BACKWARD, sent("all_gather", "uint8", 1))
    sents, step, _ = attribute([issued(150), other, issued(170), issued(350)], CALLS, SAMPLE)
    gathered = sent("all_gather", "uint8", 1)
    assert sents[0] == (gathered, sent("all_reduce", "float32", 8))
    assert step == (gathered, sent("all_reduce", "float32", 12))


def test_a_collective_of_unknown_size_leaves_its_sums_unknown() -> None:
    """Of its call and of the step, and of nothing else."""
    unknown = Issued(1_000_150, BACKWARD, None)
    sents, step, why = attribute([unknown, issued(350)], CALLS, SAMPLE)
    assert sents == [None, (sent("all_reduce", "float32", 4),)]
    assert step is None
    assert why == "torch's Flight Recorder names a dtype that has no known size"
