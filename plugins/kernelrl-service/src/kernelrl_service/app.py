"""The ASGI application: one table of endpoints, from which the routes and the OpenAPI document are made."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import ipaddress
import logging
import math
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import attrs
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.episodes import CheckedKernel, evaluate_kernel, request_key
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, StorageError, UsageError
from kernelrl_core.api.evaluators import to_json
from kernelrl_core.api.tasks import Task
from kernelrl_service import nemo_gym, openenv
from kernelrl_service.bodies import (
    BatchBody,
    BatchResource,
    Capacity,
    CheckBody,
    CheckedRow,
    EpisodeBody,
    EpisodeResource,
    EvaluationBody,
    EvaluationResource,
    Health,
    ScoreBody,
    ServedBackend,
    TaskList,
    TaskResource,
    TaskSummary,
    TurnBody,
    TurnResource,
)
from kernelrl_service.catalogue import Catalogue, version_problem
from kernelrl_service.episodes import Episodes
from kernelrl_service.metrics import Metrics
from kernelrl_service.options import Limits
from kernelrl_service.problems import Problem
from kernelrl_service.queue import Accepted, EvaluationQueue, Job
from kernelrl_service.redaction import Redaction
from kernelrl_service.schema import Endpoint, openapi, read_body
from kernelrl_service.tokens import LOCAL, Client, Tokens

__all__ = ["Application", "Server", "current_client"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_VERSION_HEADER = "Kernelrl-Api-Version"
_POLL_S = 1
"""Retry-After of an evaluation that is not finished."""
_INFRASTRUCTURE_RETRY_S = 5

current_client: ContextVar[str] = ContextVar("current_client", default=LOCAL.name)
"""Name of the client of the current request, for the evaluations of checks and episodes."""


@attrs.frozen
class Server:
    """The parts of a running server."""

    queue: EvaluationQueue
    catalogue: Catalogue
    episodes: Episodes
    metrics: Metrics
    redact: Redaction
    limits: Limits
    identity: str
    """Everything that an evaluation depends on beside the request; part of its id."""
    evaluator: str
    """Name of the evaluator component."""
    evaluator_identity: str
    gpu_model: str
    versions: Mapping[str, str]
    tokens: Tokens | None = None
    """None: no client needs a token."""
    local: Client = LOCAL
    """The client of a server without tokens."""
    is_loopback: bool = True
    """Whether only requests to a loopback name are served. A page elsewhere, whose name leads here, has another."""


class Application:
    """The endpoints of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.served, self.episodes = server.catalogue.served, server.episodes
        self._n_requests: Counter[str] = Counter()
        self.endpoints = self._table()
        document = openapi(self.endpoints, has_tokens=server.tokens is not None, max_wait_s=server.limits.wait_s)
        self._document = orjson.dumps(document)
        routes: list[BaseRoute] = [
            Route(one.path, functools.partial(self._respond, one), methods=[one.method]) for one in self.endpoints
        ]
        routes.append(WebSocketRoute(openenv.SOCKET, self._socket))
        self.asgi = Starlette(routes=routes, exception_handlers={HTTPException: self._refuse})
        self.asgi.router.redirect_slashes = False
        server.metrics.watch("kernelrl_running", "Evaluations in progress.", lambda: server.queue.running)
        server.metrics.watch("kernelrl_queued", "Evaluations that wait.", lambda: server.queue.queued)
        server.metrics.watch("kernelrl_capacity", "Evaluations that may be in progress.", lambda: server.queue.capacity)

    def _table(self) -> Sequence[Endpoint]:
        unfinished = "Not finished; see Location and Retry-After"
        result = ((200, EvaluationResource, "Finished"), (202, EvaluationResource, unfinished))
        admission = ("inline-task", "unknown-task", "unknown-backend", "queue-full", "disk")
        episode = ("unknown-task", "unknown-recipe", "infrastructure", "queue-full", "disk")
        return (
            Endpoint("GET", "/healthz", "State of the server", self._health,
                     [(200, Health, "It accepts requests")], (), is_open=True),
            Endpoint("GET", "/openapi.json", "This document", self._openapi,
                     [(200, None, "OpenAPI 3.1")], (), is_open=True),
            Endpoint("GET", "/metrics", "Metrics for Prometheus", self._metrics, [(200, None, "Text format")], ()),
            Endpoint("GET", "/v1/capacity", "Versions, load and limits", self._capacity,
                     [(200, Capacity, "Now")], ()),
            Endpoint("GET", "/v1/tasks", "Served tasks", self._tasks, [(200, TaskList, "All tasks")], ()),
            Endpoint("GET", "/v1/tasks/{id:path}", "A task with its reference", self._task,
                     [(200, TaskResource, "The task")], ("unknown-task",)),
            Endpoint("POST", "/v1/evaluations", "Evaluate a candidate", self._evaluate, result, admission,
                     body=EvaluationBody, waits=True),
            Endpoint("POST", "/v1/evaluations/batch", "Evaluate several candidates", self._evaluate_batch,
                     [(200, BatchResource, "All are finished"), (202, BatchResource, "Not all are finished")],
                     admission, body=BatchBody, waits=True),
            Endpoint("GET", "/v1/evaluations/{id}", "An evaluation", self._evaluation, result, ("not-found",),
                     waits=True),
            Endpoint("DELETE", "/v1/evaluations/{id}", "Cancel an evaluation that is not finished", self._cancel,
                     [(204, None, "It is cancelled, or was finished")], ("not-found",)),
            Endpoint("POST", "/v1/check", "Check a kernel, as `kernelrl check --json` does", self._check,
                     [(200, CheckedRow, "The result")], (*episode, "unknown-backend"), body=CheckBody),
            Endpoint("POST", "/v1/score", "Score a reply to the first prompt of a task", self._score,
                     [(200, TurnResource, "The turn")], episode, body=ScoreBody),
            Endpoint("POST", "/v1/episodes", "Open an episode", self._open_episode,
                     [(201, EpisodeResource, "The episode with its first prompt")], episode, body=EpisodeBody),
            Endpoint("GET", "/v1/episodes/{id}", "An episode with its next prompt", self._show_episode,
                     [(200, EpisodeResource, "The episode")], ("not-found",)),
            Endpoint("DELETE", "/v1/episodes/{id}", "Remove an episode", self._close_episode,
                     [(204, None, "It is removed")], ("not-found",)),
            Endpoint("POST", "/v1/episodes/{id}/turns", "Evaluate the reply to the current prompt", self._turn,
                     [(200, TurnResource, "The turn with the next prompt")], (*episode, "not-found", "conflict"),
                     body=TurnBody),
            *openenv.endpoints(self),
            *nemo_gym.endpoints(self),
        )  # fmt: skip

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _respond(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            response = await self._answer(endpoint, request)
        except Problem as problem:
            response = self._problem_response(problem)
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody receives it
        except Exception:
            logger.exception("%s %s failed", endpoint.method, endpoint.path)
            response = self._problem_response(Problem("internal", "the server's log has the reason"))
        self._server.metrics.request(endpoint.path, response.status_code)
        response.headers[_VERSION_HEADER] = API_VERSION
        return response

    def _problem_response(self, problem: Problem) -> Response:
        problem.detail = self._server.redact.text(problem.detail)
        problem.fix = self._server.redact.text(problem.fix)
        return problem.response()

    async def _refuse(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        name = "method" if status == 405 else "not-found"
        detail = "the path has no such method" if name == "method" else "there is no such path"
        response = Problem(name, detail, fix="see /openapi.json").response()
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        self._server.metrics.request("other", status)
        response.headers[_VERSION_HEADER] = API_VERSION
        return response

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        with self.admitted(request, is_open=endpoint.is_open) as client, self.problems():
            arguments: list[Any] = [request, client]
            if endpoint.body is not None:
                arguments.append(read_body(endpoint.body, await self._body(request)))
            response: Response = await endpoint.handle(*arguments)
            return response

    @contextlib.contextmanager
    def admitted(self, connection: HTTPConnection, *, is_open: bool = False) -> Iterator[Client]:
        """The client of a request or a WebSocket, which counts as one of its open requests within the block.

        Raises:
            Problem: it has no valid token, another API version, or too many open requests.
        """
        client = self._client(connection, is_open=is_open)
        version = connection.headers.get(_VERSION_HEADER)
        if version not in (None, API_VERSION):
            raise version_problem(version)
        limit = self._server.limits.requests_per_client
        if self._n_requests[client.name] >= limit:
            raise Problem("too-many", f"this client has {limit} open requests", retry_after_s=_POLL_S)
        self._n_requests[client.name] += 1
        token = current_client.set(client.name)
        try:
            yield client
        finally:
            current_client.reset(token)
            self._n_requests[client.name] -= 1
            if not self._n_requests[client.name]:
                del self._n_requests[client.name]

    @contextlib.contextmanager
    def problems(self) -> Iterator[None]:
        """Errors of the block as problems.

        Raises:
            Problem: in place of an error of kernelrl.
        """
        try:
            yield
        except StorageError as error:
            logger.error("%s", error)
            raise Problem("disk", "the journal cannot be read or written", fix="try again later",
                          retry_after_s=60) from error  # fmt: skip
        except InfrastructureError as error:
            raise Problem("infrastructure", error.message, fix="try again",
                          retry_after_s=_INFRASTRUCTURE_RETRY_S) from error  # fmt: skip
        except (UsageError, MissingPrerequisite) as refusal:
            raise Problem("invalid", refusal.message, fix=refusal.fix) from refusal

    def _client(self, connection: HTTPConnection, *, is_open: bool) -> Client:
        server = self._server
        if server.tokens is None:
            if server.is_loopback and not _names_loopback(connection.headers.get("host", "")):
                raise Problem("host", "this server responses requests to loopback addresses only")
            return server.local
        client = server.tokens.client(_token(connection.headers.get("authorization", "")))
        if client is None and not is_open:
            raise Problem("token", "the request has no valid token", fix="send the header Authorization: Bearer TOKEN")
        return client or Client("open")

    async def _body(self, request: Request) -> Any:
        limits = self._server.limits
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
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Problem("json", f"the body is not JSON: {error}") from error

    def _wait_s(self, request: Request) -> float:
        limit, given = self._server.limits.wait_s, request.query_params.get("wait", "0")
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not 0 <= value <= limit:
            raise Problem("invalid", f"wait must be a number of seconds from 0 to {limit:g}")
        return value

    async def while_connected(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that is cancelled when the client disconnects, or the server closes."""
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            return await self.attended(work, gone)
        finally:
            gone.cancel()

    async def attended(self, work: Coroutine[Any, Any, T], gone: asyncio.Future[Any]) -> T:
        """The result of work that is cancelled when the server closes.

        Args:
            gone: is done when the client has disconnected, which cancels the work, too.

        Raises:
            ClientDisconnect: the client has disconnected.
            Problem: the server is closing.
        """
        task = asyncio.ensure_future(work)
        closing = asyncio.ensure_future(self._server.queue.closing.wait())
        try:
            await asyncio.wait({task, gone, closing}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientDisconnect
            raise Problem("closing", "the server is closing", fix="try again later", retry_after_s=_POLL_S)
        finally:
            task.cancel()
            closing.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- server -------------------------------------------------------------------------------------------------------

    async def _health(self, request: Request, client: Client) -> Response:
        if self._server.queue.closing.is_set():
            raise Problem("closing", "the server is closing", retry_after_s=_POLL_S)
        return _json(Health("ok", API_VERSION))

    async def _openapi(self, request: Request, client: Client) -> Response:
        return Response(self._document, media_type="application/json")

    async def _metrics(self, request: Request, client: Client) -> Response:
        return Response(self._server.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _capacity(self, request: Request, client: Client) -> Response:
        server = self._server
        backends = {name: ServedBackend(server.redact.text(why)) for name, why in server.catalogue.untimed().items()}
        return _json(
            Capacity(
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
        )

    async def _tasks(self, request: Request, client: Client) -> Response:
        tasks = self._server.catalogue.served.tasks.values()
        return _json(TaskList(tuple(map(self._summary, tasks))))

    async def _task(self, request: Request, client: Client) -> Response:
        task = self._server.catalogue.task(request.path_params["id"])
        return _json(TaskResource(**attrs.asdict(self._summary(task)), reference=task.reference))

    def _summary(self, task: Task) -> TaskSummary:
        recipes = self._server.catalogue.recipes_with(task)
        return TaskSummary(task.id, task.name, task.split, task.level, task.sha256, task.flags, recipes)

    # --- evaluations --------------------------------------------------------------------------------------------------

    async def _evaluate(self, request: Request, client: Client, body: EvaluationBody) -> Response:
        wait_s = self._wait_s(request)
        (accepted,), _ = await self._accept([body], client, wait_s)
        (response,) = await self._responses(request, client, [accepted], wait_s)
        return self._evaluation_response(accepted, response)

    async def _evaluate_batch(self, request: Request, client: Client, body: BatchBody) -> Response:
        wait_s, limit = self._wait_s(request), self._server.limits.batch
        if len(body.requests) > limit:
            raise Problem("too-large", f"the batch has {len(body.requests)} requests; the limit is {limit}")
        accepted, order = await self._accept(body.requests, client, wait_s)
        responses = await self._responses(request, client, accepted, wait_s)
        found = {one.id: _resource(one, response) for one, response in zip(accepted, responses, strict=True)}
        is_finished = all(response is not None for response in responses)
        content = b'{"evaluations":[' + b",".join(found[id_] for id_ in order) + b"]}"
        headers = {} if is_finished else {"Retry-After": str(_POLL_S)}
        return Response(content, 200 if is_finished else 202, headers, media_type="application/json")

    async def _accept(
        self, bodies: Sequence[EvaluationBody], client: Client, wait_s: float
    ) -> tuple[list[Accepted], list[str]]:
        """The accepted evaluations, each once, and the ids in the order of the bodies."""
        server = self._server
        requests = [await server.catalogue.request(body, client) for body in bodies]
        order = [request_key(request, server.identity) for request in requests]
        documents = {id_: orjson.dumps(to_json(request)) for id_, request in zip(order, requests, strict=True)}
        return await server.queue.accept(documents, client.name, keep=wait_s == 0), order

    async def _responses(
        self, request: Request, client: Client, accepted: Sequence[Accepted], wait_s: float
    ) -> list[bytes | None]:
        """The responses that exist within the time; None for the others."""
        jobs = [one.job for one in accepted if one.job is not None]
        if not jobs or wait_s == 0:
            return [one.response for one in accepted]
        gone = asyncio.ensure_future(_disconnected(request))

        async def response(job: Job | None, stored: bytes | None) -> bytes | None:
            return stored if job is None else await self._server.queue.wait(job, client.name, gone, wait_s)

        try:
            found = await asyncio.gather(*(response(one.job, one.response) for one in accepted))
            if gone.done():
                raise ClientDisconnect
            return found
        finally:
            gone.cancel()

    async def _evaluation(self, request: Request, client: Client) -> Response:
        id_, wait_s, queue = request.path_params["id"], self._wait_s(request), self._server.queue
        job = queue.job(id_, client.name)
        if job is None:
            stored = await queue.find(id_, client.name)
            if stored is None:
                raise Problem("not-found", "there is no such evaluation", fix="post it again")
            return self._evaluation_response(Accepted(id_, None, stored), stored)
        # A client that looks at an evaluation wants it, also after this request.
        job.kept_by.add(client.name)
        accepted = Accepted(id_, job, None)
        (response,) = await self._responses(request, client, [accepted], wait_s)
        return self._evaluation_response(accepted, response)

    async def _cancel(self, request: Request, client: Client) -> Response:
        id_, queue = request.path_params["id"], self._server.queue
        job = queue.job(id_, client.name)
        if job is not None:
            await queue.release(job, client.name)
        elif await queue.find(id_, client.name) is None:
            raise Problem("not-found", "there is no such evaluation")
        return Response(status_code=204)

    def _evaluation_response(self, accepted: Accepted, response: bytes | None) -> Response:
        headers = {"Location": f"/v1/evaluations/{accepted.id}"}
        if response is None:
            headers["Retry-After"] = str(_POLL_S)
        content = _resource(accepted, response)
        return Response(content, 202 if response is None else 200, headers, media_type="application/json")

    # --- checks and episodes ------------------------------------------------------------------------------------------

    async def _check(self, request: Request, client: Client, body: CheckBody) -> Response:
        server, loop = self._server, asyncio.get_running_loop()
        server.catalogue.require_size("kernel", body.kernel)
        task = server.catalogue.task(body.task)
        if body.recipe is not None and body.task in server.catalogue.recipe(body.recipe).tasks:
            task = server.catalogue.recipe(body.recipe).tasks[body.task]
        evaluator, untimed = server.catalogue.checking(body.recipe, body.backend)
        server.queue.require_room(client.name)
        began = loop.time()
        seed = None if body.seed is None else hashlib.sha256(f"check {body.seed}".encode()).hexdigest()[:32]
        turn = await self.while_connected(request, evaluate_kernel(evaluator, task, body.kernel, seed=seed))
        if turn.masked:
            raise InfrastructureError(turn.message)
        row = CheckedKernel("kernel", turn, loop.time() - began).row(evaluator.spec, untimed)
        return Response(orjson.dumps(server.redact(row)), media_type="application/json")

    async def _score(self, request: Request, client: Client, body: ScoreBody) -> Response:
        return self._redacted(await self.while_connected(request, self.score(client, body)))

    async def _open_episode(self, request: Request, client: Client, body: EpisodeBody) -> Response:
        return self._redacted(await self._server.episodes.open(body, client.name), 201)

    async def _show_episode(self, request: Request, client: Client) -> Response:
        return self._redacted(await self._server.episodes.show(request.path_params["id"], client.name))

    async def _close_episode(self, request: Request, client: Client) -> Response:
        await self._server.episodes.close(request.path_params["id"], client.name)
        return Response(status_code=204)

    async def _turn(self, request: Request, client: Client, body: TurnBody) -> Response:
        turn = self.turn(client, request.path_params["id"], body)
        return self._redacted(await self.while_connected(request, turn))

    # --- facades ------------------------------------------------------------------------------------------------------

    def recipe_and_task(self, recipe: str, task: str) -> tuple[str, str]:
        """The names of a recipe and a task of it.

        Raises:
            Problem: they are not served.
        """
        catalogue = self._server.catalogue
        return recipe, catalogue.task_of(catalogue.recipe(recipe), task).id

    def turn(self, client: Client, id_: str, body: TurnBody) -> Coroutine[Any, Any, TurnResource]:
        """Evaluates the reply of an episode; raises like `Episodes.turn`.

        Raises:
            Problem: the reply is too large, or the queue is full.
        """
        self._server.catalogue.require_size("reply", body.reply)
        self._server.queue.require_room(client.name)
        return self._server.episodes.turn(id_, body, client.name)

    def score(self, client: Client, body: ScoreBody) -> Coroutine[Any, Any, TurnResource]:
        """Evaluates a reply to the first prompt of a task; raises like `Episodes.score`.

        Raises:
            Problem: the reply is too large, or the queue is full.
        """
        self._server.catalogue.require_size("reply", body.reply)
        self._server.queue.require_room(client.name)
        return self._server.episodes.score(body)

    async def _socket(self, socket: WebSocket) -> None:
        try:
            if "origin" in socket.headers:
                # A page in a browser, which may open WebSockets to any address.
                raise Problem("host", "this server accepts no WebSockets of web pages")
            with self.admitted(socket) as client:
                await openenv.serve_session(self, socket, client)
        except Problem as problem:
            await socket.send_denial_response(self._problem_response(problem))

    def _redacted(self, value: Any, status: int = 200) -> Response:
        content = orjson.dumps(self.redacted(value))
        return Response(content, status, media_type="application/json")

    def redacted(self, value: Any) -> Any:
        """JSON of a value without paths and secrets of this server."""
        return self._server.redact(to_json(value))


def _json(value: Any) -> Response:
    return Response(orjson.dumps(to_json(value)), media_type="application/json")


def _resource(accepted: Accepted, response: bytes | None) -> bytes:
    """JSON of an `EvaluationResource`.

    Args:
        response: JSON of `serve_request`, an object that begins with `evaluation` or `error`.
    """
    if response is None:
        status = "running" if accepted.job is not None and accepted.job.running else "queued"
        return orjson.dumps({"id": accepted.id, "status": status, "cached": False})
    status = "failed" if response.startswith(b'{"error"') else "done"
    head = orjson.dumps({"id": accepted.id, "status": status, "cached": accepted.job is None})
    return head[:-1] + b"," + response[1:]


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _token(authorization: str) -> str:
    """The token in a header: after `Bearer`, or the password after `Basic`, which is all that a URL can hold."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(given).decode().partition(":")[2]
    return ""


def _names_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"
