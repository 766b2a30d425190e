"""Calls of the app's functions: text in, text out. An error of Modal becomes one of kernelrl."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

import modal
import modal.exception
from modal import _serialization
from modal._utils import function_utils

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, MissingPrerequisite
from kernelrl_plugin_modal.config import TOKEN_FIX

__all__ = ["Calls", "RemoteFunction", "refuse_pickles", "translated"]

logger = logging.getLogger(__name__)

_CANCEL_S = 30.0
"""Time in which Modal confirms that a call is cancelled."""
_SILENCE_S = 300.0
"""Time without any result after which the log reports that calls wait for containers."""


class RemoteFunction(Protocol):
    """The part of `modal.Function` that is used; `spawn.aio` returns a `modal.FunctionCall`."""

    spawn: Any


class Calls:
    """Calls in progress. Each candidate is one call; none waits for another.

    Modal's `FunctionCall.get` must not be cancelled. So each call is a task of its own: a waiter that is cancelled ends
    the remote call, and the task then ends with the error that Modal gives for it.
    """

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._last_result_s = 0.0

    async def call(self, function: RemoteFunction, message: Mapping[str, Any]) -> dict[str, Any]:
        """The response of a container to a message. Waits for a container as long as it takes.

        Raises:
            MissingPrerequisite: the token or the app is not valid any more.
            InfrastructureError: Modal or the container failed.
        """
        spawning = asyncio.create_task(_spawned(function, json.dumps(message)))
        getting: asyncio.Task[Any] | None = None
        if not self._waiting:
            self._last_result_s = _now_s()
        self._waiting += 1
        try:
            remote = await asyncio.shield(spawning)
            getting = asyncio.create_task(_result(remote))
            return _read(await self._patiently(getting))
        except asyncio.CancelledError:
            ending = asyncio.create_task(_end(spawning, getting))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise
        finally:
            self._waiting -= 1
            self._last_result_s = _now_s()

    async def aclose(self) -> None:
        """Wait until the containers of cancelled calls are free."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _patiently(self, getting: asyncio.Task[Any]) -> Any:
        while True:
            done, _ = await asyncio.wait({getting}, timeout=_SILENCE_S)
            if done:
                return getting.result()
            if _now_s() - self._last_result_s >= _SILENCE_S:
                self._last_result_s = _now_s()
                logger.warning(
                    "no result from Modal for %.0f min; %d calls wait for containers. The run continues when one is "
                    "free; it can also be stopped and resumed",
                    _SILENCE_S / 60,
                    self._waiting,
                )


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _spawned(function: RemoteFunction, text: str) -> Any:
    return await translated(function.spawn.aio(text))


async def _result(remote: Any) -> Any:
    return await translated(remote.get.aio())


async def _end(spawning: asyncio.Task[Any], getting: asyncio.Task[Any] | None) -> None:
    """End a remote call whose waiter is gone. Its container ends the candidate and stays."""
    with contextlib.suppress(KernelRLError, TimeoutError):
        async with asyncio.timeout(_CANCEL_S):
            remote = await asyncio.shield(spawning)
            await asyncio.shield(asyncio.create_task(translated(remote.cancel.aio())))
            await asyncio.shield(getting or asyncio.create_task(_result(remote)))


def _read(payload: Any) -> dict[str, Any]:
    try:
        response = json.loads(payload) if isinstance(payload, str) else None
    except ValueError:
        response = None
    if not isinstance(response, dict):
        raise InfrastructureError("a container of Modal returned something else than JSON")
    return response


async def translated(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a call of Modal's client.

    Raises:
        MissingPrerequisite: a token, an app or a newer version of the client is missing; with the fix.
        InfrastructureError: any other failure.
    """
    failed = modal.exception
    try:
        return await work
    except (failed.AuthError, failed.PermissionDeniedError) as error:
        raise MissingPrerequisite(
            f"Modal refuses the token, or has none: {_text(error)}", fix=TOKEN_FIX, see="modal"
        ) from error
    except failed.NotFoundError as error:
        raise MissingPrerequisite(
            f"Modal has no such app: {_text(error)}", fix="kernelrl modal deploy", see="modal"
        ) from error
    except failed.VersionError as error:
        fix = "pip install -U kernelrl-plugin-modal modal"
        raise MissingPrerequisite(
            f"Modal refuses this version of its client: {_text(error)}", fix=fix, see="modal"
        ) from error
    except failed.ResourceExhaustedError as error:
        fix = "wait, lower evaluator.max_containers, or raise the limit: https://modal.com/settings"
        raise InfrastructureError(f"a quota of Modal is exhausted: {_text(error)}", fix=fix, see="modal") from error
    except (failed.Error, OSError, TimeoutError) as error:
        raise InfrastructureError(f"Modal failed: {type(error).__name__}: {_text(error)}") from error


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def refuse_pickles() -> None:
    """Let Modal's client unpickle nothing in this process.

    The functions of the app return text in CBOR (`_experimental_restrict_output`). But a container names the format of
    its result, so one that a candidate has taken over could send a pickle, which executes code here. The client has no
    option against that; a contract test fails if it reads results in another way.
    """

    def refuse(data: bytes, client: object) -> Any:
        raise modal.exception.ExecutionError("a container sent a pickle, which kernelrl does not read")

    for module in (_serialization, function_utils):
        vars(module)["deserialize"] = refuse
