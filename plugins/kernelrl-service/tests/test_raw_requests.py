"""Bytes that are no proper request of HTTP: they end in 400, and hold no connection and no memory."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvicorn
from service_servers import PATIENCE_S

from kernelrl_service.options import Limits
from kernelrl_service.protocol import LimitedProtocol
from kernelrl_testing.waiting import takes_async

POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
LIMITS = Limits(head_bytes=10_000, body_s=0.3)


async def app(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Reads a body and responds with 200."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server with the limits above, with the protocol of `kernelrl serve`."""
    http = cast(Any, functools.partial(LimitedProtocol, LIMITS))
    config = uvicorn.Config(cast(Any, app), http=http, log_config=None, lifespan="off")
    config.load()
    state = uvicorn.server.ServerState()
    made = functools.partial(config.http_protocol_class, config=config, server_state=state, app_state={})
    server = await asyncio.get_running_loop().create_server(cast(Any, made), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()


def answer(*pieces: bytes, pause_s: float = 0.0) -> bytes:
    """Everything that comes back until the server closes the connection."""

    async def send(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await takes_async(pause_s)

    async def test() -> bytes:
        async with connected() as (reader, writer), asyncio.timeout(PATIENCE_S):
            sending = asyncio.create_task(send(writer))
            try:
                return await reader.read()
            except ConnectionResetError:  # more was sent than the server wanted to read
                return b"HTTP/1.1 400 "
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    return asyncio.run(test())


@pytest.mark.parametrize("content", [
    b"HELLO\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET /a\nb HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 200,
    GET + b"X: a\0b\r\n\r\n",
    GET + b"X a\r\n\r\n",
    POST + b"Content-Length: -1\r\n\r\n{}",
    POST + b"Content-Length: 0x2\r\n\r\n{}",
    POST + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
    POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: gzip\r\n\r\n{}",
])  # fmt: skip
def test_bytes_that_are_no_request_end_in_400(content: bytes) -> None:
    assert answer(content).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("content", [
    b"GET /" + b"a" * 20_000,
    GET + b"X: " + b"a" * 20_000,
    GET + b"".join(b"X%d: a\r\n" % number for number in range(2_000)),
])  # fmt: skip
def test_a_head_above_the_limit_ends_in_400(content: bytes) -> None:
    assert answer(content).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("content", [b"", b"GET / HTT", GET + b"X: "])
def test_a_head_that_does_not_arrive_ends_in_400(content: bytes) -> None:
    assert answer(content).startswith(b"HTTP/1.1 400 ")


def test_a_head_that_arrives_in_drops_ends_in_400() -> None:
    assert answer(*[b"\r\n"] * 200, pause_s=0.01).startswith(b"HTTP/1.1 400 ")


def test_requests_in_time_are_served_on_one_connection() -> None:
    two = answer(GET + b"\r\n", POST + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}", pause_s=0.05)
    assert two.count(b"HTTP/1.1 200 ") == 2
