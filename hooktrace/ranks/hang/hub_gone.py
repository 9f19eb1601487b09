"""What is told of a hub on rank 0 that answers nothing any more, and of calls that wait meanwhile.

Silent, as the channel tells of it --> one line for the log        own status --> HangDiagnosis

Nobody asks all ranks then.  Nobody needs to: DDP does not go on without rank 0.
"""

from __future__ import annotations

from ...records.hang import hang_kind
from ..channel.messages import Silent
from .diagnosis import conclude, of_processes
from .messages import HangDiagnosis
from .sentences import PROCESSES, why
from .status import RankStatus
from .view import Finding, Statuses, View, front_of


def sentence(hub: Silent) -> str:
    """Return what is known of the hub, and what to do.

    >>> sentence(Silent(Member(0, 7, "a", "a#boot"), "stopped")).split("; ")[0]
    'the hub on rank 0 is gone: its process (pid 7 on a) is stopped by a signal'
    """
    known = PROCESSES.get(hub.state)
    what = "does not answer" if known is None else known.of_hub
    what += why(hub) if known is None or known.kind == "network" else ""
    remedy = "look at what rank 0 wrote last" if known is None else hang_kind(known.kind).remedy
    return (
        f"the hub on rank 0 is gone: its {hub.process} {what}; DDP does not go on without it; "
        f"{remedy}"
    )


def waits_without_hub(own: RankStatus, hub: Silent, world_size: int) -> HangDiagnosis | None:
    """Return why this rank's call waits, as far as it knows alone; ``None`` where none does.

    Or where the hub has no part in the call.
    """
    here = Statuses.of([own], [hub])
    front = front_of(here, here)
    if front is None:
        return None
    view = View(front, here, here, world_size)
    if hub.rank not in view.silent:
        return None
    text = f" for rank {hub.rank}, where the hub is, which does not answer{why(hub)}"
    return conclude(view, next(of_processes(view), Finding("unknown", [hub.rank], text)))
