"""What a terminal sends for a key, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import sys
import termios

import pytest

from hooktrace.commands.top.keys import Keys, keys, keys_of


def test_letters_are_small_ones_and_other_keys_are_none_of_them() -> None:
    """Several may come at once, as of somebody who types fast; Escape and Ctrl-D leave."""
    assert keys_of(b"S\x1b[B\x1bOBmq") == ["s", "\x1b[b", "\x1bob", "m", "q"]
    assert keys_of(b"\x1b") == keys_of(b"\x04") == ["q"]


def test_a_key_comes_without_enter_and_the_terminal_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without echo meanwhile."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "r+b", buffering=0) as terminal, os.fdopen(leader, "r+b", 0) as hand:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(terminal)
        with keys() as typed:
            assert typed.wait(0.0) == []
            hand.write(b"sm")
            assert typed.wait(10.0) == ["s", "m"]
        assert termios.tcgetattr(terminal) == before


def test_without_a_terminal_there_are_no_keys() -> None:
    """It waits as long."""
    assert Keys(None).wait(0.0) == []


def test_a_terminal_that_is_gone_ends_it() -> None:
    """As a closed pipe does."""
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb"):
        assert Keys(reading).wait(1.0) == ["q"]
