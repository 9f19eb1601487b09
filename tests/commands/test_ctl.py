"""The words of ``hooktrace ctl``, and what is said of those that cannot work."""

from __future__ import annotations

import pytest

from hooktrace.commands.ctl import _told, address_of, run_ctl
from hooktrace.ranks.channel.messages import Member, Silent
from hooktrace.ranks.control import CommandResult, Done
from hooktrace.records.errors import UsageError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "jump"], "'jump' is no command; pass one of status"),
        (["run", "detail"], "detail takes a number of steps; pass 1 to"),
        (["run", "probe", "0"], "probe takes a number of steps; pass 1 to"),
        (["run", "detail", "soon"], "'detail soon' is no command"),
        (["run", "status"], "channel.json is not there"),
    ],
)
def test_what_cannot_work_is_said_with_what_to_pass(words: list[str], said: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(UsageError, match=said):
        run_ctl(words, connect=None, as_json=False)


def test_connect_needs_a_place_and_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv6 addresses stand in brackets."""
    monkeypatch.delenv("HOOKTRACE_CHANNEL_TOKEN", raising=False)
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        address_of(None, "somewhere")
    with pytest.raises(UsageError, match="token in HOOKTRACE_CHANNEL_TOKEN"):
        address_of(None, "a:1")
    monkeypatch.setenv("HOOKTRACE_CHANNEL_TOKEN", "ab" * 16)
    assert address_of(None, "[fd00::1]:40").places == (("fd00::1", 40),)


def test_a_line_a_rank_and_the_silent_ones_by_process() -> None:
    """What a rank could not do stands in the place of what it did."""
    outcome = CommandResult(
        ranks={0: Done(text="paused"), 1: Done(text="x", trouble="no records"), 2: Done()},
        silent=[Silent(Member(3, 7, "b", ""), "stopped")],
    )
    assert _told(outcome).splitlines() == [
        "rank 0: paused",
        "rank 1: no records",
        "rank 3 did not answer: process 7 on b: stopped",
    ]
