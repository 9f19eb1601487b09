"""What a rule or an anomaly has to say: one sentence, its evidence and the remedy."""

from __future__ import annotations

import msgspec

from ...records.anomalies import Severity

IN_TRACE = "See in the merged trace (hooktrace export)"
"""How remedies that need all ranks side by side begin."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, what it rests on, and what to do.

    ``rule``: the name of the rule that found it, or the kind of an anomaly.  ``bucket``,
    ``rank``: the one that it is about; ``steps``: those to look at, the worst first.
    ``gain_ns``: at most so much of each step's time, ``None`` where it cannot be computed.
    ``is_wrong``: training itself is not as it should be.  ``is_kept``: said however little there
    is to gain.  ``severity``: of a hang, *fail* where it did not end; of an anomaly, as its kind
    says; ``None`` where there is something to gain and nothing is wrong.  ``lossy_remedy``: what
    to do besides, and loses something of the gradients.  ``is_small``: the gain is below 3 % of
    the step, or below what its median may be off by; nothing that loses anything is advised for
    it.
    """

    rule: str = ""
    sentence: str
    bucket: int | None = None
    rank: int | None = None
    steps: tuple[int, ...] = ()
    gain_ns: float | None = None
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    lossy_remedy: str = ""
    is_small: bool = False
    is_wrong: bool = False
    is_kept: bool = False
    severity: Severity | None = None
