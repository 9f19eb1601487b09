"""What is told of a hub on rank 0 that answers nothing any more, and of calls that wait meanwhile.

Silent, as the channel tells of it --> one line for the log        own status --> HangDiagnosis

Nobody asks all ranks then.  Nobody needs to: DDP does not go on without rank 0.
"""

from __future__ import annotations

from ...records.hang import hang_kind
from ..channel.silent_rank import SilentRank
from .conclude import HangDiagnosis, conclude
from .diagnosis import of_silent
from .sentences import process
from .status import RankStatus
from .view import Statuses, View, front_of

_KINDS = {
    "gone": ("died", "is no more"),
    "zombie": ("died", "is no more"),
    "stopped": ("stopped", "is stopped by a signal"),
    "running": ("interpreter_held", "runs, and answers nothing"),
    "unreachable": ("network", "cannot be reached"),
}
"""By the state of its process."""


def sentence(hub: SilentRank) -> str:
    """Return what is known of the hub, and what to do.

    >>> sentence(SilentRank(rank=0, pid=7, host="a", state="stopped")).split("; ")[0]
    'the hub on rank 0 is gone: its process (pid 7 on a) is stopped by a signal'
    """
    kind, what = _KINDS.get(hub.state, ("unknown", "does not answer"))
    what += f" ({hub.why})" if hub.why and kind in {"network", "unknown"} else ""
    remedy = hang_kind(kind).remedy if kind != "unknown" else "look at what rank 0 wrote last"
    return (
        f"the hub on rank 0 is gone: its {process(hub)} {what}; DDP does not go on without it; "
        f"{remedy}"
    )


def waits_without_hub(own: RankStatus, hub: SilentRank, world_size: int) -> HangDiagnosis | None:
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
    why = f" ({hub.why})" if hub.why else ""
    text = f" for rank {hub.rank}, where the hub is, which does not answer{why}"
    return of_silent(view) or conclude(view, "unknown", [hub.rank], text)
