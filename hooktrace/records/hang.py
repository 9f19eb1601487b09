"""A hang of the job, and the one table of its kinds, which log, report and docs follow.

    ranks/hang, at the hub --HangRecord--> every rank's tracer --> log, exporters, record file

The record's own message names the step, the ranks and where they are; the table says what holds for
every hang of the kind.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from .addresses import address
from .base import AnyBucket, Count, Ns, Rank, Record, Step, WallNs


class RankStacks(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the threads of one rank were.

    ``text``: as people read it, one thread after another, each with its innermost frame last.
    ``state``: of the process, ``running``, ``stopped``, ``gone`` ..., as its host tells it.
    """

    rank: Rank
    pid: Count
    host: str
    state: str
    text: str


class HangRecord(Record, frozen=True, kw_only=True, tag="hang", rename={"kind": "name"}):
    """Ranks wait for others that do not come: ``message`` says it in one sentence, and what to do.

    ``kind``: one of ``HANGS``, called ``name`` in files.  ``hang``: numbers the hangs of a run;
    a record with ``ended_after_ns`` says of an earlier one of that number that it is over.
    ``model``, ``step``, ``bucket``: of the call that waits longest; bucket -1 where none does.
    ``unit``: of a sharded model, which collective of which unit that is, as people read it; its
    bucket is numbered as in the layout of one of the ranks that wait.
    ``ranks``: those that are waited for; empty where that is not known.  ``waiting``: those that
    wait.  ``since_ns``: when that call began, in the clock of the rank that recorded this,
    and ``since_wall_ns`` since the Unix epoch.  ``rank``: who recorded it.  ``ended_after_ns``: by
    a look each second that saw that it is over, so it took so long at most.  ``failed``: it is
    over because what ranks waited in failed.
    """

    kind: str
    hang: Count
    model: str
    hook: str
    step: Step
    bucket: AnyBucket
    ranks: tuple[Rank, ...]
    waiting: tuple[Rank, ...]
    since_ns: Ns
    since_wall_ns: WallNs
    message: str
    rank: Rank
    stacks: tuple[RankStacks, ...] = ()
    ended_after_ns: Ns | None = None
    unit: str = ""
    failed: bool = False

    @property
    def sentence(self) -> str:
        """What is the case, in one line, without the fix that holds for all of its kind."""
        fix = hang_kind(self.kind).fix_of(self.unit)
        return first_line(self.message).removesuffix(f"; {fix}")

    @property
    def docs(self) -> str:
        """Where the docs explain its kind."""
        return address("hangs", self.kind)


def first_line(text: str) -> str:
    """Return a text's first line; "" of an empty one."""
    return (text.splitlines() or [""])[0]


def called(bucket: int, unit: str) -> str:
    """Return what people call a bucket, or a sharded model's collective.

    >>> called(3, ""), called(3, "blocks.2 all-gather (forward)")
    ('bucket 3', 'blocks.2 all-gather (forward)')
    """
    return unit or f"bucket {bucket}"


class HangKind(NamedTuple):
    """One kind: ``sentence`` says what is the case, ``fix`` what to do.

    ``sharded``: what to do where the model is sharded by FSDP2, if that is something else.
    """

    name: str
    sentence: str
    fix: str
    sharded: str = ""

    def fix_of(self, unit: str) -> str:
        """Return what to do about a hang in a bucket, or in a sharded model's ``unit``."""
        return self.sharded if unit and self.sharded else self.fix


_KINDS = (
    HangKind(
        "busy",
        "A rank is busy elsewhere: loading data, writing a checkpoint, evaluating",
        "look at the line it is at; have all ranks do it together, or wrap it in "
        "tracer.pause_watchdog() where it may take that long",
    ),
    HangKind(
        "died",
        "A rank's process is gone",
        "look at its last words and at the kernel's log (an out-of-memory kill leaves no others)",
    ),
    HangKind(
        "stopped",
        "A rank's process is stopped by a signal",
        "let it go on: kill -CONT its pid",
    ),
    HangKind(
        "raised",
        "A rank raised an exception and handles it while the others wait",
        "look at the exception; end the process there, so that the job ends or restarts",
    ),
    HangKind(
        "missing_bucket",
        "A rank has no gradients for a bucket that the others wait for, and went on",
        "a parameter took no part in its forward pass: pass find_unused_parameters=True to DDP",
    ),
    HangKind(
        "some_ranks_only",
        "The hook communicates on some ranks only",
        "issue the same collectives on all ranks, whatever the gradients are",
    ),
    HangKind(
        "different_collectives",
        "The ranks are in different collectives",
        "issue the same collectives in the same order on all ranks",
        "have all ranks run the same modules in the same order, as many micro-steps, and the same "
        "set_requires_gradient_sync and set_requires_all_reduce",
    ),
    HangKind(
        "different_order",
        "The ranks run backward passes of two models in different order",
        "run the models in the same order on all ranks",
    ),
    HangKind(
        "uneven_inputs",
        "A rank has no more inputs, and the others wait for its gradients",
        "wrap the loop in ddp.join(), or give all ranks as many batches",
        "give all ranks as many batches",
    ),
    HangKind(
        "waits_in_callback",
        "A callback waits for another collective, on a thread that has to complete it",
        "return the next collective's future instead of waiting for it: write the hook with "
        "@hooktrace.staged, or in place of torch's own register hooktrace's of the same name",
    ),
    HangKind(
        "never_completed",
        "The hook's future does not complete, and no rank waits for another",
        "look for a way through the hook on which nobody sets the future's result",
    ),
    HangKind(
        "interpreter_held",
        "A rank's interpreter runs nothing: a thread holds its lock and does not come back",
        "look at the native code that it is in: run py-spy dump --native --pid with its pid",
    ),
    HangKind(
        "network",
        "Ranks do not reach each other any more",
        "look at the network between the hosts, and whether the other host is up",
    ),
    HangKind(
        "unknown",
        "Why the ranks wait is not known",
        "look at the stacks of all ranks",
    ),
)

HANGS: dict[str, HangKind] = {kind.name: kind for kind in _KINDS}
"""All kinds by name, in the order in which docs list them."""


def hang_kind(name: str) -> HangKind:
    """Return what is known of a kind; of one that a newer hooktrace wrote, its name in words."""
    unknown = HangKind(name, name.replace("_", " ").capitalize(), "")
    return HANGS.get(name, unknown)
