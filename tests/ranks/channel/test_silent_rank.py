"""Silent ranks, as people are told of them."""

from __future__ import annotations

from hooktrace.ranks.channel.messages import Member, Silent
from hooktrace.ranks.channel.silent_rank import SilentRank


def test_what_the_channel_knows_is_told() -> None:
    """Rank, host, process, its state and why; how it is connected is nobody's concern."""
    silent = Silent(Member(2, 7, "node1", "node1#boot"), "stopped", "by a signal")
    assert SilentRank.of(silent) == SilentRank(
        rank=2, host="node1", pid=7, state="stopped", why="by a signal"
    )
