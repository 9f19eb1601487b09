"""How Prometheus reaches a rank: the server that it scrapes, and the file that tells it where.

port, address, TLS files --serve--> a bound socket and the thread that answers
URL, RunInfo --TargetFile.write--> <place>/hooktrace-rank<N>.json --TargetFile.remove--> gone
"""

from __future__ import annotations

import errno
import json
import logging
import os
import ssl
import threading
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ..records import RunInfo
from ..records.metrics import TARGET_LABELS
from .append_file import writable_directory

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry

_log = logging.getLogger(__name__)


class Tls(NamedTuple):
    """The server's certificate and key, and whom to trust of the clients; all ``None``: HTTP."""

    certfile: str | None
    keyfile: str | None
    client_cafile: str | None
    client_capath: str | None

    def check(self, client_auth_required: bool) -> None:
        """Load the files once, so that an error names them and no port is bound yet."""
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError(
                "the Prometheus exporter got only one of certfile and keyfile; pass both"
            )
        has_ca = self.client_cafile is not None or self.client_capath is not None
        if self.certfile is None and (has_ca or client_auth_required):
            raise ValueError(
                "the Prometheus exporter checks clients only over TLS; pass certfile and keyfile"
            )
        if client_auth_required and not has_ca:
            raise ValueError(
                "client_auth_required needs to know whom to trust; "
                "pass client_cafile or client_capath"
            )
        if self.certfile is not None:
            self._load(self.certfile, has_ca)

    def _load(self, certfile: str, has_ca: bool) -> None:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certfile, self.keyfile)
            if has_ca:
                context.load_verify_locations(self.client_cafile, self.client_capath)
        except OSError as error:
            named = ", ".join(file for file in self if file is not None)
            message = (
                f"the Prometheus exporter could not load its TLS files ({named}): "
                f"{error.strerror or error}; pass readable PEM files that belong together"
            )
            raise OSError(error.errno or errno.EINVAL, message) from error


def serve(
    port: int, addr: str, registry: CollectorRegistry, tls: Tls, client_auth_required: bool
) -> tuple[WSGIServer, threading.Thread]:
    """Bind and start the server; raises ``OSError`` that says why that is not possible."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(
            port, addr, registry, *tls, client_auth_required=client_auth_required
        )
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        message = f"the Prometheus exporter could not bind {addr}:{port}: {_remedy(error)}"
        raise OSError(number, message) from error
    if isinstance(server.socket, ssl.SSLSocket):
        # A handshake in accept() would let one silent client stop every scrape, and close().
        setattr(server.socket, "do_handshake_on_connect", False)  # noqa: B010
    return server, thread


def _remedy(error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return "port plus local rank must be at most 65535; pass a lower port, or port=0"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; pass port=0 for a free one"
    if isinstance(error, PermissionError):
        return "no permission for this port; pass port=0 or one from 1024 on"
    return f"{error.strerror or error}; pass an address of this host, such as addr='127.0.0.1'"


_announced: dict[Path, str] = {}
"""What stands in the files of this process; two endpoints of one rank have one each."""


class TargetFile:
    """One rank's file in the directory ``place``, or beside it where it ends in ``.json``.

    Raises ``OSError`` when the directory cannot be made or written.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path: Path | None = None
        self._text = ""
        try:
            writable_directory(place.parent if place.suffix == ".json" else place)
        except OSError as error:
            why = os.strerror(error.errno or errno.EIO)
            message = f"file_sd={place} cannot be used ({why}); pass a writable directory"
            raise OSError(error.errno or errno.EIO, message) from error

    @property
    def is_written(self) -> bool:
        """Whether Prometheus can find the file."""
        return self._path is not None

    def write(self, url: str, run: RunInfo) -> None:
        """Announce that the rank's metrics are at ``url``; warns where that cannot be written."""
        parts = urlsplit(url)
        labels = {name: str(getattr(run, name)) for name in TARGET_LABELS}
        if parts.scheme != "http":
            labels["__scheme__"] = parts.scheme
        text = json.dumps([{"targets": [parts.netloc], "labels": labels}], indent=1) + "\n"
        path = self._path_of(run.rank, text)
        try:
            _write_atomically(path, text)
        except OSError as error:
            _log.warning(
                "Prometheus will not discover rank %d: %s could not be written (%s); "
                "make room or permit writing there, or add the target %s by hand",
                run.rank, path, error, parts.netloc,
            )  # fmt: skip
            return
        self._path = path
        self._text = _announced[path] = text

    def remove(self) -> None:
        """Remove the file, if it is still the one that was written."""
        path, self._path = self._path, None
        if path is None:
            return
        _announced.pop(path, None)
        try:
            # A later run may have announced itself under the same name.
            if path.read_text() == self._text:
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s could not be removed (%s); delete it by hand", path, error)

    def _path_of(self, rank: int, text: str) -> Path:
        if self._place.suffix == ".json":
            first = self._place.with_name(f"{self._place.stem}-rank{rank}.json")
        else:
            first = self._place / f"hooktrace-rank{rank}.json"
        others = (first.with_stem(f"{first.stem}-{number}") for number in count(2))
        return next(p for p in chain([first], others) if _announced.get(p, text) == text)


def _write_atomically(path: Path, text: str) -> None:
    # The temporary name must not match Prometheus' *.json, and the mode must let it read the file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
