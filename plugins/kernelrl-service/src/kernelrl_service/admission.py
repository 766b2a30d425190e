"""Who may send a request: tokens, names of this machine, versions, and the number of open requests."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
from collections import Counter
from collections.abc import Iterator

from starlette.requests import HTTPConnection

from kernelrl_core.api import API_VERSION
from kernelrl_service.catalogue import version_problem
from kernelrl_service.problems import Problem
from kernelrl_service.server import Server, current_client
from kernelrl_service.tokens import Client

__all__ = ["VERSION_HEADER", "Admission"]

VERSION_HEADER = "Kernelrl-Api-Version"
_RETRY_S = 1


class Admission:
    """Admits the requests of a server and counts the open ones of each client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._n_open: Counter[str] = Counter()

    @contextlib.contextmanager
    def admitted(self, connection: HTTPConnection, *, is_open: bool = False) -> Iterator[Client]:
        """The client of a request or a WebSocket, which counts as one of its open requests within the block.

        Args:
            is_open: no token is needed.

        Raises:
            Problem: it has no valid token, another API version, or too many open requests.
        """
        client = self._client(connection, is_open=is_open)
        version = connection.headers.get(VERSION_HEADER)
        if version not in (None, API_VERSION):
            raise version_problem(version)
        limit = self._server.limits.requests_per_client
        if self._n_open[client.name] >= limit:
            raise Problem("too-many", f"this client has {limit} open requests", retry_after_s=_RETRY_S)
        self._n_open[client.name] += 1
        token = current_client.set(client.name)
        try:
            yield client
        finally:
            current_client.reset(token)
            self._n_open[client.name] -= 1
            if not self._n_open[client.name]:
                del self._n_open[client.name]

    def _client(self, connection: HTTPConnection, *, is_open: bool) -> Client:
        server = self._server
        if server.tokens is None:
            if server.is_loopback and not _names_loopback(connection.headers.get("host", "")):
                raise Problem("host", "this server serves requests to loopback addresses only")
            return server.local
        client = server.tokens.client(_token(connection.headers.get("authorization", "")))
        if client is None and not is_open:
            raise Problem("token", "the request has no valid token", fix="send the header Authorization: Bearer TOKEN")
        return client or Client("open")


def _token(authorization: str) -> str:
    """The token in a header: after `Bearer`, or the password after `Basic`, which is all that a URL can hold."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(given).decode().partition(":")[2]
    return ""


def _names_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"
