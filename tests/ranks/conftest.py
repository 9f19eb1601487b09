"""Hosts that are none: what the ranks of one process call so."""

from __future__ import annotations

import pytest


@pytest.fixture
def loopback_reaches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks of different hosts reach each other by loopback, all there is between them."""
    monkeypatch.setattr("hooktrace.ranks.channel.membership.is_loopback", lambda _: False)
