"""The background loop: its shared objects, and its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kernelrl_adapters.shared import close_background, in_background, shared


class Held:
    closed = False

    async def aclose(self) -> None:
        self.closed = True


def test_an_object_is_shared_until_the_loop_is_closed() -> None:
    first, second = (in_background(shared("a", Held)) for _ in range(2))
    other = in_background(shared("b", Held))
    assert first is second
    assert other is not first
    close_background()
    assert [held.closed for held in (first, other)] == [True, True]  # type: ignore[attr-defined]
    assert in_background(shared("a", Held)) is not first


def test_any_thread_may_wait_also_where_a_loop_is_running() -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def outer() -> str:
        return in_background(name())

    assert asyncio.run(outer()) == "kernelrl-adapters"


def test_an_error_reaches_the_caller() -> None:
    async def fail() -> None:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        in_background(fail())
