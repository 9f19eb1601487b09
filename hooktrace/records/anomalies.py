"""What went wrong in a hook, and the one table of what can; report, check and docs follow it.

    AnomalyRecord.kind --ANOMALIES--> what it means, what to do, whether gradients are wrong

The record's own message names the hook, the bucket and the numbers; the table says what holds for
every record of the kind.  The module is longer than 300 lines because the table stands whole.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from .addresses import address
from .base import AnyBucket, Count, Ns, Rank, Record, Step

Severity = Literal["warn", "fail"]

Seen = Literal[
    "on sampled steps",
    "on every call",
    "with debug=True",
    "with instrument()",
    "by hooktrace run",
    "by check_hook",
]


class AnomalyRecord(Record, frozen=True, kw_only=True, tag="anomaly", rename={"kind": "name"}):
    """Something that went wrong in a hook: ``message`` names it and ends in what to do.

    ``kind``: one of ``ANOMALIES``, called ``name`` in files, whose ``kind`` is anomaly.  ``rank``:
    of the process that saw it.  ``parameter``: the one that it is about, if it is about one.
    ``bucket`` is -1 where it is about the whole model.
    """

    kind: str
    model: str
    hook: str
    rebuild: Count
    step: Step
    bucket: AnyBucket
    stage: str
    time_ns: Ns
    message: str
    parameter: str | None = None
    rank: Rank | None = None

    @property
    def docs(self) -> str:
        """Where the docs explain its kind."""
        return address("errors-and-anomalies", self.kind)


class Said(NamedTuple):
    """What a kind says: what is the case, and what to do."""

    sentence: str
    fix: str


class AnomalyKind(NamedTuple):
    """One kind: ``sentence`` says what is the case, ``fix`` what to do.

    ``gradients_wrong``: DDP trains on gradients that are not what they should be.  ``severity``:
    what the check of a hook makes of it; *fail* where training ends or goes wrong, *warn* where the
    hook is right in ordinary training and there is something to know.  ``seen``: when it is looked
    for.  ``sharded``: what it says of a sharded model (FSDP2), where that is something else.
    """

    name: str
    sentence: str
    fix: str
    gradients_wrong: bool
    severity: Severity
    seen: Seen
    sharded: Said | None = None

    def said(self, *, sharded: bool) -> Said:
        """Return what it says, of a sharded model or of another one."""
        if sharded and self.sharded is not None:
            return self.sharded
        return Said(self.sentence, self.fix)


def _wrong(
    name: str,
    sentence: str,
    fix: str,
    seen: Seen = "on sampled steps",
    sharded: Said | None = None,
) -> AnomalyKind:
    return AnomalyKind(name, sentence, fix, True, "fail", seen, sharded)


def _right(
    name: str, sentence: str, fix: str, seen: Seen, severity: Severity = "warn"
) -> AnomalyKind:
    return AnomalyKind(name, sentence, fix, False, severity, seen)


_KINDS = (
    _wrong(
        "not_averaged",
        "The hook returns the sum of the gradients, not their average",
        "divide by the world size",
    ),
    _wrong(
        "averaged_twice",
        "The hook divides by the world size twice",
        "divide by the world size once",
    ),
    _wrong(
        "wrong_sign",
        "The hook returns the average with the opposite sign",
        "look for a minus sign",
    ),
    _wrong(
        "wrong_scale",
        "The hook returns the average times a factor",
        "look at what it divides by",
        "by check_hook",
    ),
    _wrong(
        "not_communicated",
        "The hook returns this rank's own gradients, or a multiple: nothing was communicated",
        "average over the ranks, or declare the hook local: trace(hook, local=True)",
    ),
    _wrong(
        "ranks_missing",
        "The hook returns an average without some of the ranks",
        "look at the process group that the hook uses",
    ),
    _wrong(
        "replicas_diverge",
        "The ranks train on different gradients, by a checksum of their bits",
        "give all ranks the same bits: look for random numbers, for state and for sums in an order "
        "of the rank's own",
    ),
    AnomalyKind(
        "nonfinite_gradient",
        "A gradient came in with NaN or inf",
        "look at the loss and the backward pass of this rank, not at the hook",
        True,
        "warn",
        "on sampled steps",
    ),
    _wrong(
        "nonfinite_result",
        "The hook made NaN or inf of finite gradients",
        "a cast to float16 ends at 65504: use bf16_compress_hook, or scale the gradients",
        sharded=Said(
            "The hook made NaN or inf of what is finite without it",
            "a cast to float16 ends at 65504: use bf16_reduce_scatter, or scale the gradients",
        ),
    ),
    _wrong(
        "nonfinite_average",
        "NaN or inf came with the average",
        "look at the rank that reports nonfinite_gradient; where none does, at the hook's casts "
        "and divisions",
        "with debug=True",
    ),
    _wrong(
        "changed_after_completion",
        "A result changed after its future had completed",
        "complete the future when the last collective has: work.get_future().then(...)",
        "with debug=True",
    ),
    _wrong(
        "not_synchronised",
        "Backward passes do not call the hook, so the ranks train apart",
        "call ddp(...) and not ddp.module(...), and run the forward pass of the last micro-batch "
        "outside no_sync()",
        "with instrument()",
    ),
    _wrong(
        "hook_exception",
        "The hook or a collective of it raised, or DDP could not have read its result",
        "fix it, or where a connection broke look at which rank ended first; make the DDP model "
        "anew, since a raising hook leaves DDP's reducer broken",
        "on every call",
        Said(
            "A collective of a unit raised, or the hook in its place",
            "fix what it says; to go on, call reset_iter_state() on the model's root on all ranks "
            "before the next step: the gradients of this one are lost",
        ),
    ),
    _right(
        "no_compression",
        "The hook keeps for later what it leaves out, and sends as many bytes as it gets",
        "look at which tensor it gives to the collective, and at its dtype",
        "by check_hook",
    ),
    _right(
        "stall",
        "A step waited for its communication two seconds or more beyond the usual",
        "see in the report of all ranks whether one came late; if none did, look at what stopped a "
        "rank, its machine or the network then",
        "on every call",
    ),
    _right(
        "fails_on_gloo",
        "A hook of torch's is registered that hangs or raises on gloo",
        "register hooktrace's hook of the same name, which works on gloo",
        "by hooktrace run",
    ),
    _right(
        "hang",
        "The hook did not end in time",
        "look at the stacks of all ranks: one of them waits for a collective that another one "
        "does not start",
        "by check_hook",
        "fail",
    ),
    _right(
        "crash",
        "A rank's process ended",
        "look at its last words and at the stack of the call",
        "by check_hook",
        "fail",
    ),
    _right(
        "exception",
        "The case raised outside the hook",
        "look at the message: the hook's state, or DDP, refuses what the case does",
        "by check_hook",
        "fail",
    ),
    _wrong(
        "wrong_gradients",
        "The result is not the average, nor near it",
        "compare one bucket's result with the mean of the gradients",
        "by check_hook",
    ),
    _wrong(
        "wrong_parameters",
        "What a sharded model gathers is not the ranks' parameters, nor near them",
        "compare each row of the whole with what its rank has given",
        "by check_hook",
    ),
    _right(
        "overflow",
        "Gradients of up to 1e5 give NaN or inf",
        "use bfloat16, or scale the gradients",
        "by check_hook",
    ),
    _right(
        "not_supported",
        "The hook refuses a dtype, or NaN, with an error that says so",
        "use it for what it takes",
        "by check_hook",
    ),
    _right(
        "nan_hidden",
        "A NaN of one rank does not come out: neither a loss scaler nor the loss shows it",
        "hand NaN on",
        "by check_hook",
    ),
    _right(
        "nan_stays_in_state",
        "NaN or inf stay in the hook's state when the gradients are finite again",
        "keep what is not finite out of the state",
        "by check_hook",
    ),
    _right(
        "not_picklable",
        "The hook, its state or the model does not pickle",
        "define the hook at a module's top level, and keep handles out of its state",
        "by check_hook",
    ),
)

ANOMALIES: dict[str, AnomalyKind] = {kind.name: kind for kind in _KINDS}
"""All kinds by name, in the order in which docs list them."""


def anomaly_kind(name: str) -> AnomalyKind:
    """Return what is known of a kind; of one that a newer hooktrace wrote, its name in words."""
    sentence = name.replace("_", " ").capitalize()
    unknown = AnomalyKind(name, sentence, "", False, "warn", "on every call")
    return ANOMALIES.get(name, unknown)
