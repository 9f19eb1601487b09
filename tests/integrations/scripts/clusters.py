"""A real local cluster, and commands on it: ``clusters.py dask|ray 'report RUN --on {}' ...``.

{} is its URL.  It has two workers, lets nobody in but these subcommands of hooktrace, which run one
after another, and is gone when they have ended.
"""

import os
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port


@contextmanager
def dask() -> Iterator[str]:
    """Yield the URL of a Dask cluster whose workers are processes."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address.replace("tcp://", "dask://")


@contextmanager
def ray() -> Iterator[str]:
    """Yield the URL of a Ray cluster's server for clients."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    port, client = free_port(), free_port()
    program = Path(sys.executable).with_name("ray")
    start = ["start", "--head", "--block", "--num-cpus=2", "--node-ip-address=127.0.0.1"]
    # In a folder of its own, so that a program beside it that starts a Ray does not find this one.
    folder = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
    start += [
        f"--temp-dir={folder.name}",
        f"--port={port}",
        f"--ray-client-server-port={client}",
        "--include-dashboard=false",
    ]
    with folder, subprocess.Popen([program, *start], stdout=subprocess.PIPE, text=True) as head:
        try:
            for line in head.stdout or ():
                if "Ray runtime started" in line:
                    break
            else:
                raise RuntimeError("Ray did not start")
            yield f"ray://127.0.0.1:{client}"
        finally:
            head.terminate()  # with --block it ends all of its processes


if __name__ == "__main__":
    with {"dask": dask, "ray": ray}[sys.argv[1]]() as url:
        for words in sys.argv[2:]:
            command = [url if word == "{}" else word for word in shlex.split(words)]
            subprocess.run([sys.executable, "-m", "hooktrace", *command], check=True)
