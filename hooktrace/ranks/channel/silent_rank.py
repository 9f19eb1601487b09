"""A rank that did not answer a question, as hangs and commands tell of it.

Silent, as the channel has it --of--> SilentRank
"""

from __future__ import annotations

import msgspec

from .messages import Silent


class SilentRank(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A rank that did not answer.

    ``state``: of its process: ``running``, ``stopped``, ``zombie``, ``gone``, ``ended`` (it said
    goodbye before), ``unreachable`` with its whole host, ``unknown``.  ``why``: what else is known.
    """

    rank: int
    host: str = ""
    pid: int = 0
    state: str = "unknown"
    why: str = ""

    @classmethod
    def of(cls, silent: Silent) -> SilentRank:
        """Return what people are told of one."""
        who = silent.member
        return cls(rank=who.rank, host=who.host, pid=who.pid, state=silent.state, why=silent.why)
