"""The functions of the app, as its containers execute them: JSON text in, JSON text out.

A message has `do`: an operation. A response has the result, or `error` with `message` and `fix`
(`kernelrl_core.api.evaluators.serve_request`). One process serves one message at a time.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import modal
import modal.experimental

from kernelrl_core.api.components import registry, worker_versions
from kernelrl_core.api.config import pack_files, unpack_files, visible_gpus
from kernelrl_core.api.evaluators import (
    EvaluationRequest,
    EvaluationSettings,
    Task,
    from_json,
    serve_request,
    to_json,
)
from kernelrl_judge.client.pool import JudgePool
from kernelrl_plugin_modal.image import DISTRIBUTIONS

__all__ = ["close", "serve"]

logger = logging.getLogger(__name__)

Message = Mapping[str, Any]


async def serve(text: str) -> str:
    """Execute one message. Cancelling the call ends the candidate; the container then serves the next message."""
    message = json.loads(text)
    started = time.monotonic()
    response = await _OPERATIONS[message["do"]](_pool(), message)
    # Modal bills a container while it has a message, whatever the GPU does meanwhile.
    return json.dumps({**response, "seconds": round(time.monotonic() - started, 3)})


async def close() -> None:
    """End the judges of this process. A container that ends does so without this call."""
    pool = _pool()
    _pool.cache_clear()
    await pool.aclose()


@functools.cache
def _pool() -> JudgePool:
    # One candidate has the GPU and the cores of a container.
    return JudgePool(workers=1, gpu_workers=1)


async def _describe(pool: JudgePool, message: Message) -> dict[str, Any]:
    """GPU and versions of this container."""
    arch = next((gpu.arch for gpu in visible_gpus()), "")
    return {"versions": worker_versions(registry(), *DISTRIBUTIONS), "gpu": pool.gpu_model(), "arch": arch}


async def _build(pool: JudgePool, message: Message) -> dict[str, Any]:
    """Compile the extensions of a request for the architecture `arch`; `builds`: their files by relative path."""
    request = from_json(EvaluationRequest, message["request"])
    builds = pool.builds
    keys = await builds.compile(request, True, message["arch"])
    # The image of all containers has the rest, the binder, which is seven times as large as an extension.
    names = {name for key in keys for name in builds.store.files(key) if name.startswith("objects/")}
    return {"builds": await asyncio.to_thread(pack_files, builds.directory, sorted(names))}


async def _evaluate(pool: JudgePool, message: Message) -> dict[str, Any]:
    """Evaluate a request on a GPU of the model `gpu`, with the `builds` of another container."""
    if pool.gpu_model() != message["gpu"]:
        await _end_container("its GPU is another model")
        text = f"the container has GPU {pool.gpu_model() or 'none'}, the run {message['gpu'] or 'none'}"
        return {"error": "InfrastructureError", "message": text, "fix": ""}
    await asyncio.to_thread(unpack_files, pool.builds.directory, message["builds"])
    response = await serve_request(pool.evaluate, message["request"])
    if response.get("error") == "InfrastructureError" or pool.on_gpu.quarantine:
        await _end_container(pool.on_gpu.quarantine or str(response.get("message")))
    return response


async def _audit(pool: JudgePool, message: Message) -> dict[str, Any]:
    """Audit a task."""
    settings = from_json(EvaluationSettings, message["settings"])
    return {"audit": to_json(await pool.audit(from_json(Task, message["task"]), settings, message["timeout_s"]))}


_OPERATIONS: Mapping[str, Callable[[JudgePool, Message], Awaitable[dict[str, Any]]]] = {
    "describe": _describe,
    "build": _build,
    "evaluate": _evaluate,
    "audit": _audit,
}


async def _end_container(reason: str) -> None:
    """Take no further messages, so that a failed GPU or judge gets no second candidate; a new container replaces it."""
    logger.error("this container ends: %s", reason)
    if not modal.is_local():
        await modal.experimental.stop_fetching_inputs.aio()
