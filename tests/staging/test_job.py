"""The address by which other hosts reach this one."""

from __future__ import annotations

from typing import Any

from torch.distributed import HashStore, PrefixStore, TCPStore

from hooktrace.staging.job import address_of_this_host


def test_a_store_without_a_server_is_of_one_host() -> None:
    """A file, or memory."""
    store: Any = PrefixStore("p", HashStore())
    assert address_of_this_host(store) == "127.0.0.1"


def test_it_is_the_one_by_which_the_store_is_reached() -> None:
    """Through any prefixes; of a server on loopback it is loopback."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert address_of_this_host(PrefixStore("a", PrefixStore("b", server))) == "127.0.0.1"
