"""What differs between the versions of Tinker's SDK. Each difference is found in the SDK itself, not by its version."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import tinker

__all__ = ["close", "in_daemon", "open_rest", "open_session", "outcome", "prompt_logprobs", "served_models"]

T = TypeVar("T")


async def outcome(made: Any) -> Any:
    """The result of a call of the SDK, which returns a future of either kind, a coroutine, or the result itself."""
    if inspect.isawaitable(made):
        return await made
    if isinstance(made, concurrent.futures.Future):
        return await asyncio.wrap_future(made)
    return made


async def in_daemon(work: Callable[[], T]) -> T:
    """The result of a blocking call in a daemon thread, which does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except BaseException as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the event loop may be closed by now
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, daemon=True).start()
    return await done


async def open_rest(client: Any, *, base_url: str | None, api_key: str | None) -> Any:
    """A client for requests outside a session."""
    if _lists_models(getattr(tinker, "RestClient", None)):
        return await in_daemon(lambda: tinker.RestClient(base_url=base_url, api_key=api_key))
    return await in_daemon(client.create_rest_client)


async def open_session(client: Any) -> None:
    await in_daemon(lambda: client.holder)  # the first access opens the session and blocks


async def served_models(client: Any, rest: Any) -> list[Any]:
    """The server's list of models."""
    request = rest.get_server_capabilities if _lists_models(rest) else client.get_server_capabilities_async
    return list((await outcome(request())).supported_models)


def _lists_models(rest: Any) -> bool:
    return hasattr(rest, "get_server_capabilities")


def prompt_logprobs(sampler: Any, prompt: Any, last: int) -> Any:
    """Request log-probabilities of a prompt; an SDK that cannot request those of its last tokens requests all."""
    if "prompt_logprobs_last_n" in inspect.signature(sampler.compute_logprobs).parameters:
        return sampler.compute_logprobs(prompt, prompt_logprobs_last_n=last)
    return sampler.compute_logprobs(prompt)


async def close(client: Any) -> None:
    """End a session. Without this call the server ends it after a while."""
    if hasattr(client, "close"):
        await outcome(client.close("success"))
