"""Endpoints about the server itself: state, metrics, capacity, tasks."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from starlette.requests import Request
from starlette.responses import Response

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.tasks import Task
from kernelrl_service.bodies import Capacity, Health, ServedBackend, TaskList, TaskResource, TaskSummary
from kernelrl_service.problems import Problem
from kernelrl_service.requests import POLL_S, json_response
from kernelrl_service.schema import Endpoint
from kernelrl_service.server import Server
from kernelrl_service.tokens import Client

__all__ = ["endpoints"]


def endpoints(server: Server) -> Sequence[Endpoint]:
    """State, metrics, capacity and tasks of the server."""

    async def health(request: Request, client: Client) -> Response:
        if server.queue.closing.is_set():
            raise Problem("closing", "the server is closing", retry_after_s=POLL_S)
        return json_response(Health("ok", API_VERSION))

    async def metrics(request: Request, client: Client) -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")

    async def capacity(request: Request, client: Client) -> Response:
        return json_response(_capacity(server, client))

    async def tasks(request: Request, client: Client) -> Response:
        return json_response(TaskList(tuple(_summary(server, task) for task in server.catalogue.served.tasks.values())))

    async def task(request: Request, client: Client) -> Response:
        found = server.catalogue.task(request.path_params["id"])
        return json_response(TaskResource(**attrs.asdict(_summary(server, found)), reference=found.reference))

    return (
        Endpoint("GET", "/healthz", "State of the server", health, [(200, Health, "It accepts requests")], (),
                 is_open=True),
        Endpoint("GET", "/metrics", "Metrics for Prometheus", metrics, [(200, None, "Text format")], ()),
        Endpoint("GET", "/v1/capacity", "Versions, load and limits", capacity, [(200, Capacity, "Now")], ()),
        Endpoint("GET", "/v1/tasks", "Served tasks", tasks, [(200, TaskList, "All tasks")], ()),
        Endpoint("GET", "/v1/tasks/{id:path}", "A task with its reference", task, [(200, TaskResource, "The task")],
                 ("unknown-task",)),
    )  # fmt: skip


def _capacity(server: Server, client: Client) -> Capacity:
    backends = {name: ServedBackend(server.redact.text(why)) for name, why in server.catalogue.untimed().items()}
    return Capacity(
        api_version=API_VERSION,
        versions=server.versions,
        evaluator=server.evaluator,
        identity=server.evaluator_identity,
        gpu_model=server.gpu_model,
        capacity=server.queue.capacity,
        running=server.queue.running,
        queued=server.queue.queued,
        backends=backends,
        recipes=tuple(server.catalogue.served.recipes),
        inline_tasks=client.inline_tasks,
        limits=server.limits,
    )


def _summary(server: Server, task: Task) -> TaskSummary:
    recipes = server.catalogue.recipes_with(task)
    return TaskSummary(task.id, task.name, task.split, task.level, task.sha256, task.flags, recipes)
