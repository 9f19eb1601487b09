"""What a plain hook sends, on sampled steps: read from PyTorch's Flight Recorder afterwards.

    first bucket of a sampled step   WireSample: which step, which thread, both clocks --> ring
    first bucket after that step     the drain is woken, before the recorder forgets
    drain    FlightRecorder --entries--> attribute(entries, the step's calls) --> Transfer

The Flight Recorder lists every collective of a process with its time, thread, dtypes and sizes,
those from callbacks too.  Hooks run one after another on the thread of the backward pass, so what
that thread issues while a hook runs is that hook's.  What other threads issue on the same process
groups comes from callbacks, and belongs to a bucket where only one was under way; else only the
step's sum is known.

The recorder is private to torch and may be missing, off (``TORCH_FR_BUFFER_SIZE=0``) or too small
for the step: then the bytes are unknown, never guessed, and the step says why.
"""

from __future__ import annotations

import functools
import math
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..records import Transfer

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler

_LONG_NS = 60 * 10**6


@dataclass(frozen=True, slots=True)
class WireSample:
    """A step whose collectives are to be looked up.

    ``thread``: of its backward pass, as ``threading.get_ident`` says.  ``host_ns`` and ``wall_ns``:
    the tracer's clock and ``time.time_ns`` at one moment of the step.
    """

    model: str
    step: int
    thread: int
    host_ns: int
    wall_ns: int

    def assemble(self, into: Assembler) -> None:
        """Be kept until the step is complete."""
        into.sent.add(self)


class Issued(NamedTuple):
    """One collective: when (wall-clock ns), from which thread, what it was given, on which group.

    ``transfer`` is ``None`` for a dtype of unknown size.
    """

    wall_ns: int
    thread: int
    transfer: Transfer | None
    group: str = ""


class CallWindow(NamedTuple):
    """When a hook was called, returned, and had its result, in the tracer's clock."""

    ready: int
    launched: int
    done: int


class UnknownError(Exception):
    """What was sent is not known; the message says why, and what to do."""


_DUMPS = {"cuda": "_dump_nccl_trace", "xpu": "_dump_xccl_trace"}
"""Private functions of torch for the backends with a recorder of their own, by device."""

_DUMP = "_dump_fr_trace"
"""For all others."""


class FlightRecorder:
    """Reads torch's Flight Recorders.

    ``dumps``: the functions that do it, by name.  A dump of a full recorder, 2,000 collectives,
    takes some 25 ms, so one serves all steps that ended before; of a larger recorder it may take
    long, and is then rare.
    """

    def __init__(self, dumps: Mapping[str, Callable[[bool, bool], bytes]] | None = None) -> None:
        self._dumps = _torchs_dumps() if dumps is None else dumps
        self._read_ns = -1
        self._rested_ns = 0
        self._took_ns = 0
        self._entries: dict[str, list[dict[str, Any]]] = {}
        self._reaches_ns: dict[str, int] = {}
        self._why: dict[str, str] = {}

    def issued(self, from_ns: int, to_ns: int, device_type: str = "cpu") -> list[Issued]:
        """Return what this process issued from ``from_ns`` to ``to_ns``, wall-clock ns, in order.

        ``device_type``: of the buckets, whose backend must have been heard.  Leaves out what
        hooktrace itself sent.  Raises ``UnknownError`` where it is not known.
        """
        if self._read_ns <= to_ns:
            self._read_again()
        needed = _DUMPS.get(device_type, _DUMP)
        why = next(iter(self._why.values()), None)
        if why is None and needed not in self._reaches_ns:
            why = _MISSING if needed not in self._dumps else _EMPTY
        if why is None and max(self._reaches_ns.values()) > from_ns:
            why = _FORGOTTEN
        if why is not None:
            raise UnknownError(why)
        found = [one for name in self._entries for one in self._between(name, from_ns, to_ns)]
        return sorted(found, key=lambda one: one.wall_ns)

    def _between(self, name: str, from_ns: int, to_ns: int) -> list[Issued]:
        """Return what a recorder lists of that time: of all that it holds, some per cent."""
        try:
            return [
                _issued(entry)
                for entry in self._entries[name]
                if from_ns <= entry["time_created_ns"] <= to_ns
                and entry["process_group"][0]
                and "recv" not in entry["profiling_name"]
            ]
        except Exception as error:
            raise UnknownError(_unreadable(name, error)) from error

    def _read_again(self) -> None:
        # Before the dump: what is issued while it runs may be missing in it.
        now = time.time_ns()
        if now < self._rested_ns:
            raise UnknownError(
                f"reading torch's Flight Recorder took {self._took_ns / 1e6:.0f} ms, so it is done "
                "rarely; a smaller TORCH_FR_BUFFER_SIZE is read faster"
            )
        self._read_ns = now
        self._entries, self._reaches_ns, self._why = {}, {}, {}
        for name, dump in self._dumps.items():
            try:
                self._read(name, dump)
            except Exception as error:
                self._why[name] = _unreadable(name, error)
        self._took_ns = time.time_ns() - now
        if self._took_ns > _LONG_NS:
            self._rested_ns = now + 1000 * self._took_ns

    def _read(self, name: str, dump: Callable[[bool, bool], bytes]) -> None:
        # Without stack traces, which make it slow.  The bytes are torch's own.
        entries = pickle.loads(dump(True, False)).get("entries")
        if not entries:
            return
        self._entries[name] = entries
        # Record 0 is the process's first: nothing was forgotten.
        forgetful = entries[0]["record_id"] > 0
        self._reaches_ns[name] = entries[0]["time_created_ns"] if forgetful else 0


def _unreadable(name: str, error: Exception) -> str:
    """Return why nothing is known: another version's format, say."""
    return f"torch's {name} cannot be read ({type(error).__name__}: {error})"


_MISSING = "this torch has no Flight Recorder for the hook's backend"
_EMPTY = (
    "torch's Flight Recorder has no collective of the hook's backend; it is off, or the backend "
    "does not report to it: set TORCH_FR_BUFFER_SIZE=2000"
)
_FORGOTTEN = (
    "torch's Flight Recorder has forgotten the step's first collectives; set TORCH_FR_BUFFER_SIZE "
    "to more than the 2000 that it holds by default"
)
_FROM_THREADS = (
    "the hook issues nothing on the thread of the backward pass, and nothing tells its other "
    "threads' collectives from those of others"
)
_UNKNOWN_SIZE = "torch's Flight Recorder names a dtype that has no known size"


def _torchs_dumps() -> dict[str, Callable[[bool, bool], bytes]]:
    c10d = getattr(torch._C, "_distributed_c10d", None)
    names = (_DUMP, *_DUMPS.values())
    return {name: dump for name in names if (dump := getattr(c10d, name, None)) is not None}


@functools.cache
def _dtype(name: str) -> torch.dtype | None:
    """Return the dtype that the recorder calls ``name``, as torch's tensor types are called."""
    try:
        return torch.empty(0).type(f"torch.{name}Tensor").dtype
    except ValueError:
        return None


def _issued(entry: dict[str, Any]) -> Issued:
    sizes, names = entry["input_sizes"], entry["input_dtypes"]
    if len(names) == 1:
        names = names * len(sizes)
    dtypes = [dtype for name in names if (dtype := _dtype(name)) is not None]
    transfer = None
    if len(dtypes) == len(names):
        transfer = Transfer(
            # As "gloo:all_reduce", and NCCL's "nccl:send 0->1".
            collective=entry["profiling_name"].rpartition(":")[2].partition(" ")[0],
            dtype="+".join(sorted({str(dtype).removeprefix("torch.") for dtype in dtypes})),
            wire_bytes=sum(
                math.prod(shape) * dtype.itemsize
                for shape, dtype in zip(sizes, dtypes, strict=True)
            ),
        )
    group = entry["process_group"][0]
    return Issued(entry["time_created_ns"], int(entry["thread_id"]), transfer, group)


Sent = tuple[Transfer, ...] | None
"""What was sent, by collective and dtype; ``None`` where it cannot be known."""


class Attribution(NamedTuple):
    """What each call sent, and what all of them together did; ``why``: that is not known."""

    of_calls: Sequence[Sent]
    of_step: Sent
    why: str | None = None


def attribute(
    issued: Sequence[Issued], calls: Sequence[CallWindow], sample: WireSample
) -> Attribution:
    """Return what each call sent, and what all of them together did.

    ``calls``: of one step, in the clock of ``sample.host_ns``.
    """
    shift = sample.host_ns - sample.wall_ns
    of_call: list[list[Transfer | None]] = [[] for _ in calls]
    unclear: set[int] = set()
    of_step: list[Transfer | None] = []
    groups: set[str] = set()
    # First what the hooks issue themselves, which tells the groups that they use.
    for one in sorted(issued, key=lambda one: one.thread != sample.thread):
        at = one.wall_ns + shift
        if one.thread == sample.thread:
            owners = [i for i, call in enumerate(calls) if call.ready <= at <= call.launched]
            groups.update([one.group] if owners else [])
        else:
            owners = [i for i, call in enumerate(calls) if call.ready <= at <= call.done]
            if groups and one.group not in groups:
                continue  # somebody else's: a hook's callbacks go on with its groups
        transfer = one.transfer if groups else None  # nothing tells a hook's threads from others
        if len(owners) > 1:
            unclear.update(owners)
        for i in owners:
            of_call[i].append(transfer)
        if owners:
            of_step.append(transfer)
    sent = [None if i in unclear else summed(of_call[i]) for i in range(len(calls))]
    total = summed(of_step)
    if total is not None:
        return Attribution(sent, total)
    return Attribution(sent, None, _UNKNOWN_SIZE if groups else _FROM_THREADS)


def summed(transfers: Iterable[Transfer | None]) -> Sent:
    """Return transfers with one entry for each collective and dtype."""
    sums: Counter[tuple[str, str]] = Counter()
    for transfer in transfers:
        if transfer is None:
            return None
        sums[transfer.collective, transfer.dtype] += transfer.wire_bytes
    return tuple(
        Transfer(collective=collective, dtype=dtype, wire_bytes=count)
        for (collective, dtype), count in sorted(sums.items())
    )
