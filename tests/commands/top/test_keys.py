"""What a terminal sends for a key, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import sys
import termios

import pytest

from hooktrace.commands.top.keys import Keys, keys, keys_of


def test_keys_have_names() -> None:
    """Arrows in both of a terminal's modes; letters are small ones."""
    sent = [b"\x1b[A", b"\x1bOB", b"\x1b[6~", b"\r", b"S", b"\x1b", b"\x1b[19~"]
    named = ["up", "down", "page down", "enter", "s", "q", "\x1b"]
    assert [keys_of(data) for data in sent] == [[name] for name in named]


def test_keys_that_come_at_once_are_several() -> None:
    """As of somebody who types fast, or a paste."""
    assert keys_of(b"\x1b[B\x1b[B\rdq") == ["down", "down", "enter", "d", "q"]
    reading, writing = os.pipe()
    os.write(writing, b"\x1b[B\r")
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb"):
        typed = Keys(reading)
        assert [typed.wait(1.0), typed.wait(1.0), typed.wait(0.0)] == ["down", "enter", None]


def test_a_key_comes_without_enter_and_the_terminal_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without echo meanwhile."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "r+b", buffering=0) as terminal, os.fdopen(leader, "r+b", 0) as hand:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(terminal)
        with keys() as typed:
            assert typed.wait(0.0) is None
            hand.write(b"d")
            assert typed.wait(10.0) == "d"
            hand.write(b"\x1b[B")
            assert typed.wait(10.0) == "down"
        assert termios.tcgetattr(terminal) == before


def test_without_a_terminal_there_are_no_keys() -> None:
    """It waits as long."""
    assert Keys(None).wait(0.0) is None


def test_a_terminal_that_is_gone_ends_it() -> None:
    """As a closed pipe does."""
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb"):
        assert Keys(reading).wait(1.0) == "q"
