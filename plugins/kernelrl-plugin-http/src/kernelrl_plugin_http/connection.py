"""Requests to one server, and the error that each failure becomes.

no connection, no response in time, closing, disk full     Unavailable; another server, or a later try
queue full                                                  Unavailable; a later try
evaluation failed on the server                             InfrastructureError; the core retries it
token refused, other versions, backend missing              MissingPrerequisite; the run ends
request refused                                             UsageError; the run ends
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from typing import Any

import httpcore

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import UNIX

__all__ = ["Connection", "Unavailable"]

_PROBLEM = "urn:kernelrl:"
_PREREQUISITES = ("host", "token", "unknown-backend", "version")
"""Problems that only the user can solve, on the server or here."""
_MAX_TEXT = 300
_MAX_IDLE = 64
_IDLE_S = 30.0
_LONGEST_WAIT_S = 3600.0


class Unavailable(Exception):
    """A server cannot serve a request now. It says nothing about the request.

    Args:
        message: the failure; contains no token.
        wait_s: seconds after which the server expects the next request; None: it is not reachable.
        is_silent: no response came in time, so that none will come to other requests either.
    """

    def __init__(self, message: str, wait_s: float | None = None, *, is_silent: bool = False) -> None:
        super().__init__(message)
        self.message, self.wait_s, self.is_silent = message, wait_s, is_silent


class Connection:
    """An HTTP client of one server.

    Args:
        url: `http://HOST:PORT`, `https://HOST`, or `unix:PATH`.
        token: sent with each request; empty: none.
        timeout_s: time within which the server must respond.
    """

    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        self.url = url
        self._token, self._timeout_s = token, timeout_s
        is_unix = url.startswith(UNIX)
        self._base = "http://localhost" if is_unix else url
        self._headers = [("Content-Type", "application/json")]
        if token:
            self._headers.append(("Authorization", f"Bearer {token}"))
        self._pool = httpcore.AsyncConnectionPool(
            uds=url.removeprefix(UNIX) if is_unix else None,
            max_connections=None,
            max_keepalive_connections=_MAX_IDLE,
            keepalive_expiry=_IDLE_S,
        )

    async def get(self, path: str, *, share: float = 1.0) -> dict[str, Any]:
        """The response to a GET request; raises like `post`.

        Args:
            share: part of the time within which the server must respond.
        """
        return self._read(await self._send("GET", path, None, share=share))

    async def post(self, path: str, body: Mapping[str, Any], *, repeatable: bool = True) -> dict[str, Any]:
        """The response to a POST request.

        Args:
            repeatable: an equal request has no further effect, so that it can be sent again where a connection breaks.

        Raises:
            Unavailable, KernelRLError: see the table of this module.
        """
        return self._read(await self._send("POST", path, json.dumps(body).encode(), repeatable))

    async def delete(self, path: str) -> None:
        """Send a DELETE request; raises like `post`."""
        response = await self._send("DELETE", path, None)
        if response.status != 204:
            self._read(response)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def _send(
        self, method: str, path: str, content: bytes | None, repeatable: bool = True, share: float = 1.0
    ) -> httpcore.Response:
        def request() -> Awaitable[httpcore.Response]:
            return self._pool.request(method, self._base + path, headers=self._headers, content=content)

        try:
            async with asyncio.timeout(share * self._timeout_s):
                try:
                    return await request()
                except (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError):
                    # An idle connection that the server, or a proxy, closed meanwhile.
                    if not repeatable:
                        raise
                    return await request()
        except TimeoutError:
            raise Unavailable(f"no response within {share * self._timeout_s:.3g} s", is_silent=True) from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise Unavailable(f"no connection ({self._clean(str(error) or type(error).__name__)})") from None

    def _read(self, response: httpcore.Response) -> dict[str, Any]:
        try:
            content = json.loads(response.content)
        except ValueError:
            content = None
        fields = content if isinstance(content, dict) else {}
        if 200 <= response.status < 300 and fields:
            return fields
        raise self._failure(response, fields)

    def _failure(self, response: httpcore.Response, problem: Mapping[str, Any]) -> Unavailable | KernelRLError:
        status = response.status
        if status < 400:
            return Unavailable(f"the response ({status}) is not from kernelrl serve; check the address")
        kind = str(problem.get("type", "")).removeprefix(_PROBLEM)
        text = self._clean(str(problem.get("detail") or problem.get("title") or "no reason given"))
        fix = self._clean(str(problem.get("fix") or ""))
        message = f"server {self.url}: {text} ({status})"
        if status == 429:
            return Unavailable(text, _retry_after(response) or 1.0)
        if kind == "infrastructure" or status == 500:
            return InfrastructureError(message, fix=fix)
        if status >= 500 or status == 408:
            return Unavailable(f"{text} ({status})")
        if status == 401:
            return MissingPrerequisite(message, fix=fix or "set the token of the server in KERNELRL_SERVICE_TOKEN")
        if kind in _PREREQUISITES:
            return MissingPrerequisite(message, fix=fix, see="service")
        return UsageError(message, fix=fix, see="service")

    def _clean(self, text: str) -> str:
        """A text of the server on one line of at most 300 characters, without the token."""
        text = text.replace(self._token, "[token]") if self._token else text
        return " ".join(text.split())[:_MAX_TEXT]


def _retry_after(response: httpcore.Response) -> float | None:
    given = dict(response.headers).get(b"retry-after", b"")
    try:
        seconds = float(given)
    except ValueError:
        return None
    return seconds if 0 <= seconds < _LONGEST_WAIT_S else None
