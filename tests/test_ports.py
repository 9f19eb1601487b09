"""Ports that tests are given are theirs, whatever else runs."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests import ports
from tests.distributed.harness import REPOSITORY

CHILD = "from tests import ports; ports._PORTS = range({}, {}); ports.free_port()"


def test_no_other_process_is_given_a_port_at_which_nobody_listens_yet() -> None:
    """Nor one beside it that belongs to it."""
    first = ports.free_ports(3)
    command = [sys.executable, "-c", CHILD.format(first, first + 3)]
    child = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert "no 1 ports in a row are left" in child.stderr


def test_a_port_at_which_somebody_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does so need not know of this."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "_PORTS", range(port, port + 1))
        with pytest.raises(RuntimeError, match="no 1 ports in a row are left"):
            ports.free_port()
