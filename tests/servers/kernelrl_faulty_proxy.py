"""A TCP proxy in front of a server, whose connections are cut, stall, or are dropped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Literal

__all__ = ["Cut", "FaultyProxy", "faulty_proxy"]

Cut = tuple[Literal["request", "response"], int]
"""A connection is cut when so many bytes of this direction were forwarded."""


class FaultyProxy:
    """Forwards connections to a server.

    Args:
        cut: called for each connection; None: it is not cut.
    """

    def __init__(self, host: str, port: int, cut: Callable[[], Cut | None]) -> None:
        self._host, self._port, self._cut = host, port, cut
        self._forwards, self._drops = asyncio.Event(), False
        self._forwards.set()
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.n_connections = 0
        self.n_cut = 0

    def stall(self) -> None:
        """From now on, connections are accepted and stay open, and nothing is forwarded."""
        self._forwards.clear()

    def drop(self) -> None:
        """From now on, all connections are closed, also those that are open."""
        self._drops = True
        self._forwards.set()
        for writer in self._open:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until one side closes it, or it is cut."""
        self.n_connections += 1
        cut = self._cut()
        back: asyncio.StreamWriter | None = None
        self._open.add(writer)
        try:
            await self._forwards.wait()
            if self._drops:
                return
            there, back = await asyncio.open_connection(self._host, self._port)
            directions = [
                asyncio.create_task(self._copy(reader, back, cut, "request")),
                asyncio.create_task(self._copy(there, writer, cut, "response")),
            ]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
        except OSError:  # the server does not run
            pass
        finally:
            self._open.discard(writer)
            for one in (writer, back):
                if one is not None:
                    one.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: Cut | None, direction: str
    ) -> None:
        left = cut[1] if cut is not None and cut[0] == direction else None
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._forwards.wait()
                is_end = left is not None and len(data) >= left
                writer.write(data[:left] if is_end else data)
                await writer.drain()
                if is_end:
                    self.n_cut += 1
                    return
                left = left - len(data) if left is not None else None


@contextlib.asynccontextmanager
async def faulty_proxy(url: str, cut: Callable[[], Cut | None] = lambda: None) -> AsyncIterator[FaultyProxy]:
    """A proxy in front of the server `http://HOST:PORT`.

    Args:
        cut: called for each connection; None: it is not cut.
    """
    host, port = url.removeprefix("http://").split(":")
    proxy = FaultyProxy(host, int(port), cut)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=1024)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.drop()
