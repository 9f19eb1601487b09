"""One rank of a group: runs the scenarios that the tests' process names, until it says no more.

    worker.py SOCKET: sends (rank, pid), receives "module:function", sends (failed, value), ...

The process ends at once when the other end of the socket is closed: whoever waits for this rank is
gone, however it ended.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import pickle
import queue
import random
import socket
import sys
import threading
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch._dynamo  # DDP does when it is made; here it is done once for all ranks
import torch.distributed as dist
from _pytest.assertion import install_importhook
from _pytest.config import get_config

import hooktrace
from tests import leaks


def main(path: str) -> None:
    """Run scenarios in the order in which they come."""
    rank = int(os.environ["RANK"])
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        connection = Connection(client.detach())
    connection.send((rank, os.getpid()))
    names: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    faulthandler.enable()  # a rank that dies says where, in the output that a failure shows
    threading.Thread(target=_listen, args=(connection, names), daemon=True).start()
    install_importhook(get_config())  # failed assertions of tests tell their values
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    while (name := names.get()) is not None:
        connection.send(_outcome(name, rank))
    hooktrace.shutdown()


def _listen(connection: Connection, names: queue.SimpleQueue[str | None]) -> None:
    """Take orders beside a scenario that may hang; a lost connection ends the process."""
    name: str | None = ""
    while name is not None:
        try:
            name = connection.recv()
        except (EOFError, OSError):
            os._exit(1)
        if name == "stacks":
            faulthandler.dump_traceback(all_threads=True)
        else:
            names.put(name)


def _outcome(name: str, rank: int) -> tuple[bool, bytes | str]:
    """Return (failed, pickled result or traceback); leaves the process as it was."""
    module, function = name.split(":")
    before = dict(os.environ)
    torch.manual_seed(0)
    random.seed(0)
    try:
        scenario = getattr(importlib.import_module(module), function)
        scenario = getattr(scenario, "on_rank", scenario)
        outcome = (False, pickle.dumps(scenario(rank)))
    except Exception:
        return True, traceback.format_exc()
    finally:
        os.environ.clear()
        os.environ.update(before)
    gc.collect()  # DDP objects that are collected late end in an abort now and then
    left = leaks.of_this_process()
    return (True, left) if left else outcome


if __name__ == "__main__":
    main(sys.argv[1])
