"""What every endpoint does with a request: read its JSON body and its query, and notice when its client is gone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from kernelrl_core.api.evaluators import to_json
from kernelrl_service.options import Limits
from kernelrl_service.problems import Problem

__all__ = ["POLL_S", "attended", "disconnected", "json_response", "parsed", "read_json", "wait_of", "while_connected"]

T = TypeVar("T")

_MAX_DEPTH = 100
POLL_S = 1
"""Retry-After, in seconds, of something that is not finished."""


async def read_json(request: Request, limits: Limits) -> Any:
    """The body of a request.

    Raises:
        Problem: it has another type, is too large or too slow, or is not JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Another type could come from a page in a browser without a question to this server.
    if media_type != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise Problem("content-type", "the body must have the type application/json and no encoding",
                      fix="send the header Content-Type: application/json")  # fmt: skip
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and len(stated) < 20 and int(stated) > limits.body_bytes:
        raise Problem("too-large", f"the body has {stated} bytes; the limit is {limits.body_bytes}")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    raise Problem("too-large", f"the body has more than {limits.body_bytes} bytes")
    except TimeoutError:
        raise Problem("slow", f"the body did not arrive within {limits.body_s:g} s") from None
    return parsed(body)


def parsed(text: bytes | bytearray | str) -> Any:
    """The value of a JSON document.

    Raises:
        Problem: it is not JSON, or nested too deeply to be checked and written again.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Problem("json", f"the body is not JSON: {error}") from error
    level, depth = [value], 0
    while level := [item for one in level for item in _items(one)]:
        depth += 1
        if depth > _MAX_DEPTH:
            raise Problem("invalid", f"the body has more than {_MAX_DEPTH} levels of objects and lists")
    return value


def _items(value: Any) -> Sequence[Any]:
    """The objects and lists in an object or a list."""
    inside = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        inside = value.values()
    return [item for item in inside if isinstance(item, dict | list)]


def wait_of(request: Request, limits: Limits) -> float:
    """Seconds for which a request waits for a result.

    Raises:
        Problem: the parameter `wait` is not a number within the limit.
    """
    given = request.query_params.get("wait", "0")
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 <= value <= limits.wait_s:
        raise Problem("invalid", f"wait must be a number of seconds from 0 to {limits.wait_s:g}")
    return value


async def disconnected(request: Request) -> None:
    """Returns when the client of a request, whose body was read, disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def while_connected(request: Request, closing: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of work that is cancelled when the client disconnects, or the server closes."""
    gone = asyncio.ensure_future(disconnected(request))
    try:
        return await attended(closing, work, gone)
    finally:
        gone.cancel()


async def attended(closing: asyncio.Event, work: Coroutine[Any, Any, T], gone: asyncio.Future[Any]) -> T:
    """The result of work that is cancelled when the server closes.

    Args:
        gone: is done when the client has disconnected, which cancels the work, too.

    Raises:
        ClientDisconnect: the client has disconnected.
        Problem: the server is closing.
    """
    task = asyncio.ensure_future(work)
    closed = asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait({task, gone, closed}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientDisconnect
        raise Problem("closing", "the server is closing", fix="try again later", retry_after_s=POLL_S)
    finally:
        task.cancel()
        closed.cancel()
        await asyncio.gather(task, return_exceptions=True)


def json_response(value: Any, status: int = 200) -> Response:
    """A value of the classes of `bodies`, or plain data, as JSON."""
    return Response(orjson.dumps(to_json(value)), status, media_type="application/json")
