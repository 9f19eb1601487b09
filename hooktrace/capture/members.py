"""Which ranks of the job a process group has, in three numbers.

ProcessGroup --members_of--> (first, end, stride), as ``range`` takes them
"""

from __future__ import annotations

import torch.distributed as dist

from ..records import Members


def members_of(group: dist.ProcessGroup) -> Members | None:
    """Return a group's ranks in the job; ``None`` where they are no range.

    Those of a device mesh always are one; of a mesh that was put together by hand they need not be.
    """
    try:
        ranks = dist.get_process_group_ranks(group)
    except Exception:  # of a group that was destroyed
        return None
    if not ranks:
        return None
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    found = (ranks[0], ranks[-1] + 1, stride)
    return found if stride > 0 and ranks == list(range(*found)) else None
