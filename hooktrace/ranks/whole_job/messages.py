"""What nodes tell of steps on the way up, and the plan that the hub tells all of them."""

from __future__ import annotations

from math import ceil

import msgspec

from ...records import StepSpread

MOST_STEPS = 256
"""Of a model in one message; of more, the oldest are lost."""

_MESSAGES_A_SECOND = 125
_MERGES_A_SECOND = 625
"""What the hub takes: half a hundredth of a core, most of which is what sockets cost."""
_LONGEST_S = 20


class ModelSteps(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Steps of one model, over the ranks that the sender speaks for."""

    model: str
    hook: str
    steps: list[StepSpread]


class RankLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where one rank is with one model.

    ``step``: its last.  ``period_ns``, ``exposed_ns``: means of its last steps that were timed.
    ``arrivals``: step and arrival in rank 0's clock, of the last of which it is known, to within
    ``uncertainty_ns``.  ``anomalies``: how many it saw; ``anomaly``: the last one, in words.
    """

    rank: int
    host: str
    model: str
    step: int
    period_ns: int | None
    exposed_ns: int | None
    arrivals: tuple[tuple[int, int], ...]
    uncertainty_ns: int
    anomalies: int = 0
    anomaly: str = ""


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node and all below it have to tell since it last did.

    ``lines``: of all these ranks, a list of ``RankLine`` which the hub keeps as it comes.
    ``lost``: steps that had no room, so far.
    """

    models: list[ModelSteps]
    lines: msgspec.Raw
    lost: int = 0


class Plan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How often a node tells, and which steps: those whose number ``every`` divides."""

    interval_s: float = 1.0
    every: int = 1


def next_plan(now: Plan, senders: int, steps_a_second: float) -> Plan:
    """Return the plan under which the hub can take what comes.

    ``senders``: nodes that report to it.  ``steps_a_second``: that the job makes, of all models.
    ``every`` goes down again only when half of what can be taken is left then.
    """
    most = _MERGES_A_SECOND / max(senders, 1)
    every = now.every
    while steps_a_second / every > most:
        every *= 2
    while every > 1 and steps_a_second / (every // 2) < most / 2:
        every //= 2
    return Plan(float(min(max(ceil(senders / _MESSAGES_A_SECOND), 1), _LONGEST_S)), every)


encode = msgspec.msgpack.Encoder().encode
decode_part = msgspec.msgpack.Decoder(Part).decode
decode_lines = msgspec.msgpack.Decoder(list[RankLine]).decode
decode_plan = msgspec.msgpack.Decoder(Plan).decode
