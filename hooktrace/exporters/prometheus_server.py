"""The HTTP or HTTPS server that Prometheus scrapes, and what can be wrong with its options.

port, address, TLS files --serve--> a bound socket and the thread that answers
"""

from __future__ import annotations

import errno
import ssl
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry


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
