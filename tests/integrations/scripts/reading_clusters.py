"""Print what report and compare say of two runs, read here, by Dask and by Ray, as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from distributed import LocalCluster

from hooktrace.analysis.compare.view import run_compare
from hooktrace.analysis.report.view import run_report
from tests.exporters.processes import running, until
from tests.ports import free_port

A, B = map(Path, sys.argv[1:])


def said(on: str) -> list[object]:
    """Return both as they are printed."""
    found = []
    for shown in (
        lambda: run_report(A, as_json=True, on=on, every=4),
        lambda: run_compare([str(A), str(B)], as_json=True, on=on, every=4),
    ):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            shown()
        found.append(json.loads(out.getvalue()))
    return found


@contextlib.contextmanager
def dask_cluster() -> Iterator[str]:
    """Two processes on loopback."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address.replace("tcp://", "dask://")


@contextlib.contextmanager
def ray_cluster() -> Iterator[str]:
    """A head on loopback with two workers, to which others connect by Ray's client."""
    os.environ["RAY_AUTH_MODE"] = "disabled"  # nobody else is on this network
    # Ray's proxy forks a server a client while its own threads are in gRPC, whose handlers of forks
    # then abort the child now and then ("Check failed: next_worker->state == KICKED").
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    port = free_port()
    head = (
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address", "127.0.0.1", "--port", str(free_port()), "--num-cpus", "2"),
        *("--include-dashboard", "false", "--ray-client-server-port", str(port)),
    )
    with running(head, log := Path("ray.log")):
        until(lambda: socket.create_connection(("127.0.0.1", port), 1), is_open, log)
        yield f"ray://127.0.0.1:{port}"


def is_open(connection: socket.socket) -> bool:
    """Somebody listens."""
    connection.close()
    return True


if __name__ == "__main__":
    answers = {"local": said("local")}
    with dask_cluster() as address:
        answers["dask"] = said(address)
    with ray_cluster() as address:
        answers["ray"] = said(address)
    print(json.dumps(answers))
