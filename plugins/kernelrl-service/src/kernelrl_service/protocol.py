"""HTTP connections whose requests must begin in time, and with a head of limited size."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kernelrl_service.options import Limits

__all__ = ["LimitedProtocol"]


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed with status 400 if the head of a request is too slow or too large.

    The application sees a request only after its head, so it cannot limit it.
    """

    def __init__(self, limits: Limits, **of_server: Any) -> None:
        super().__init__(**of_server)
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        """Runs while a head is incomplete."""
        self._n_head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection begins with a head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; those of a head count."""
        is_between_requests = self.cycle is None or self.cycle.response_complete
        if self._head_timer is None and is_between_requests:
            self._expect_head()
        super().data_received(data)
        if self._head_timer is None:
            return
        self._n_head_bytes += len(data)
        if self._n_head_bytes > self._limits.head_bytes:
            self._refuse(f"The head of the request has more than {self._limits.head_bytes} bytes.")

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._end_head()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._n_head_bytes = 0
        message = f"The head of the request did not arrive within {self._limits.body_s:g} s."
        self._head_timer = self.loop.call_later(self._limits.body_s, self._refuse, message)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, message: str) -> None:
        self._end_head()
        if not self.transport.is_closing():
            self.send_400_response(message)
