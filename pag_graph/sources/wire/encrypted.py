"""TLS of what is sent between machines: certificates, and a connection that two threads use at once."""

from __future__ import annotations

import ssl
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError, SinkError
from pag_graph.store.access import check_private

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

_READ_BYTES = 1 << 16


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return how a follower proves who it is.

    Parameters
    ----------
    certificate
        File of PEM: its certificate, and those of who signed it, up to the authority.
    key
        File of PEM that nobody else may read (mode 600): the certificate's key, without a password.

    Returns
    -------
    ssl.SSLContext
        TLS 1.2 or later.

    Raises
    ------
    InvalidParameterError
        If others may read the key, or they do not belong together.
    SinkError
        If a file cannot be read.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with _read(f"{certificate} and {key} are no certificate with its key", "Both are PEM; the key has no password."):
        check_private(key)
        # An empty password: a key that needs one is refused, and nobody is asked.
        context.load_cert_chain(certificate, key, password="")
    return context


def client_context(authority: Path) -> ssl.SSLContext:
    """Return whom a recorder trusts.

    Parameters
    ----------
    authority
        File of PEM: who must have signed the follower's certificate. Nobody else is trusted.

    Returns
    -------
    ssl.SSLContext
        TLS 1.2 or later; the certificate must name the host.

    Raises
    ------
    InvalidParameterError
        If no certificate is in it.
    SinkError
        If it cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with _read(f"No certificate is in {authority}", "It is a file of PEM."):
        context.load_verify_locations(authority)
    return context


def reason_of(error: ssl.SSLError) -> str:
    """Return what a person wants to know of an error.

    Parameters
    ----------
    error
        Of a certificate, or of a connection.

    Returns
    -------
    str
        What is wrong with the certificate, where it is that; the reason of OpenSSL else.
    """
    return getattr(error, "verify_message", "") or error.reason or str(error)


@contextmanager
def _read(refused: str, hint: str) -> Iterator[None]:
    """Say what is wrong with files that cannot be used, or not be read."""
    try:
        yield
    except ssl.SSLError as error:
        message = f"{refused}: {reason_of(error)}."
        raise InvalidParameterError(message, hint) from error
    except OSError as error:
        message = f"{refused}: it cannot be read: {error}."
        raise SinkError(message) from error


class Encrypted:
    """A connection of a recorder that has seen a good certificate.

    One thread may receive while another one sends, which Python's own encrypted sockets do not promise: who waits for
    the network does not hold the lock.

    Parameters
    ----------
    connection
        Has a timeout, which holds for each wait.
    context
        From `client_context`.
    host
        Whom the certificate must name.

    Raises
    ------
    ssl.SSLError
        If there is no such certificate, or the other side does not speak TLS.
    OSError
        If the connection breaks.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        while not self._has_met():
            self._wait()

    def _has_met(self) -> bool:
        with self._lock:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            finally:
                # An alert, too: the other side should hear why.
                self._flush()
            return True

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._connection.sendall(self._outgoing.read())

    def _wait(self) -> None:
        """Wait for more from the network."""
        encrypted = self._connection.recv(_READ_BYTES)
        with self._lock:
            if encrypted:
                self._incoming.write(encrypted)
            else:
                self._incoming.write_eof()

    def recv(self, most: int) -> bytes:
        """Return what is there, at least a byte; nothing where the connection has ended."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(most)
                except ssl.SSLWantReadError:
                    # An answer to what is no data, such as a change of keys.
                    self._flush()
                except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    return b""
            self._wait()

    def sendall(self, content: bytes) -> None:
        """Send all of it."""
        with self._lock:
            self._tls.write(content)
            self._flush()

    def shutdown(self, how: int) -> None:
        """End the connection, from any thread."""
        self._connection.shutdown(how)
