"""The address by which other hosts reach this one."""

from __future__ import annotations

from typing import Any

from torch.distributed import HashStore, PrefixStore, TCPStore

from hooktrace.staging.job import address_of_this_host


def test_it_is_the_one_by_which_the_store_is_reached() -> None:
    """Through any prefixes; a store without a server is of one host."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    memory: Any = HashStore()
    for store in (PrefixStore("a", PrefixStore("b", server)), PrefixStore("p", memory)):
        assert address_of_this_host(store) == "127.0.0.1"
