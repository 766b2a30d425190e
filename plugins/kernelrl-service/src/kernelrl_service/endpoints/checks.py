"""The endpoint of checks: a kernel for a task, as `kernelrl check` does it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from kernelrl_core.api.components import registry
from kernelrl_core.api.episodes import (
    CheckedKernel,
    backend_note,
    check_secret,
    evaluate_kernel,
    needs_package,
    turn_lines,
)
from kernelrl_core.api.errors import InfrastructureError
from kernelrl_service.bodies import CheckBody, CheckedRow
from kernelrl_service.problems import Problem
from kernelrl_service.requests import json_response, while_connected
from kernelrl_service.schema import Endpoint
from kernelrl_service.server import Server
from kernelrl_service.tokens import Client

__all__ = ["endpoints"]

_NAME_LIMIT = 400
"""Longest name of a file, in characters."""


def endpoints(server: Server) -> Sequence[Endpoint]:
    """The endpoint of checks."""

    async def check(request: Request, client: Client, body: CheckBody) -> Response:
        loop = asyncio.get_running_loop()
        server.catalogue.require_size("kernel", body.kernel)
        server.catalogue.require_package(body.package)
        if body.as_command and not body.package and needs_package(body.kernel):
            raise Problem("invalid", "the kernel imports a module that is not installed on the server",
                          fix="send its files in package")  # fmt: skip
        task = server.catalogue.task_to_check(body, client)
        evaluator, untimed = server.catalogue.checking(body.recipe, body.backend, as_command=body.as_command)
        server.queue.require_room(client.name)
        began = loop.time()
        secret = None if body.seed is None else check_secret(body.seed)
        name = body.name[:_NAME_LIMIT]
        work = evaluate_kernel(evaluator, task, body.kernel, name=name, package=body.package, secret=secret)
        turn = await while_connected(request, server.queue.closing, work)
        if turn.masked:
            raise InfrastructureError(turn.message)
        row = CheckedKernel(name or "kernel", turn, loop.time() - began).row(evaluator.spec, untimed)
        if body.as_command:
            row["evaluator"] = "http"  # of the client, as the command would name it
            row["lines"] = turn_lines(turn, untimed, settings=evaluator.spec.settings)
            row["note"] = backend_note(turn, evaluator.spec, registry())
        return json_response(server.redact(row))

    problems = (
        "inline-task",
        "unknown-task",
        "unknown-recipe",
        "unknown-backend",
        "infrastructure",
        "queue-full",
        "disk",
    )
    summary = "Check a kernel, as `kernelrl check --json` does"
    return (Endpoint("POST", "/v1/check", summary, check, [(200, CheckedRow, "The result")], problems, body=CheckBody),)
