"""Pending requests, and their results until they are fetched."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

import attrs

__all__ = ["Body", "Pending", "Pendings"]

Body = Callable[[Any], bytes | dict[str, Any]]
_KEPT_S = 120.0
"""How long a result is kept after it was fetched: the response may be lost."""
_FORGOTTEN_S = 3600.0
"""How long a result is kept that is never fetched."""


@attrs.define(eq=False)
class Pending:
    """A pending request or its result."""

    result: Future[Any]
    body: Body
    """Converts the result to the body of the response: protocol buffer bytes, or JSON fields."""
    since: float
    fetched: bool = False


class Pendings:
    """Pending requests and results by request id."""

    def __init__(self) -> None:
        self._pending: OrderedDict[str, Pending] = OrderedDict()
        self._ids: dict[Hashable, str] = {}

    def add(self, key: Hashable, start: Callable[[], Future[Any]], body: Body) -> str:
        """Start a request, unless one with this key exists; returns the request id."""
        self._sweep()
        if key in self._ids:
            return self._ids[key]
        name = uuid.uuid4().hex
        self._pending[name] = Pending(start(), body, time.monotonic())
        self._ids[key] = name
        return name

    def get(self, name: str) -> Pending | None:
        return self._pending.get(name)

    def _sweep(self) -> None:
        now = time.monotonic()
        old = [
            name
            for name, pending in self._pending.items()
            if pending.result.done() and now - pending.since > (_KEPT_S if pending.fetched else _FORGOTTEN_S)
        ]
        if old:
            for name in old:
                del self._pending[name]
            self._ids = {key: name for key, name in self._ids.items() if name in self._pending}
