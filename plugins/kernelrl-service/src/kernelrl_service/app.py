"""The ASGI application: the routes of all endpoints, and the response to each error."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from kernelrl_core.api import API_VERSION
from kernelrl_service.admission import VERSION_HEADER, Admission
from kernelrl_service.endpoints import checks, episodes, evaluations, nemo_gym, openenv, state
from kernelrl_service.problems import Problem, as_problems
from kernelrl_service.requests import read_json
from kernelrl_service.schema import Endpoint, openapi, read_body
from kernelrl_service.server import Server
from kernelrl_service.tokens import Client

__all__ = ["Application"]

logger = logging.getLogger(__name__)

_SUBJECTS = (state, evaluations, checks, episodes, openenv, nemo_gym)


class Application:
    """The endpoints of a server. The OpenAPI document is made from the same table as the routes."""

    def __init__(self, server: Server) -> None:
        self._server, self._admission = server, Admission(server)
        document = Endpoint("GET", "/openapi.json", "This document", self._openapi, [(200, None, "OpenAPI 3.1")], (),
                            is_open=True)  # fmt: skip
        self.endpoints: Sequence[Endpoint] = (document, *(one for made in _SUBJECTS for one in made.endpoints(server)))
        self._document = orjson.dumps(
            openapi(self.endpoints, has_tokens=server.tokens is not None, max_wait_s=server.limits.wait_s)
        )
        routes: list[BaseRoute] = [
            Route(one.path, functools.partial(self._respond, one), methods=[one.method]) for one in self.endpoints
        ]
        routes.append(WebSocketRoute(openenv.SOCKET, self._serve_socket))
        self.asgi = Starlette(routes=routes, exception_handlers={HTTPException: self._refuse})
        self.asgi.router.redirect_slashes = False
        server.metrics.watch("kernelrl_running", "Evaluations in progress.", lambda: server.queue.running)
        server.metrics.watch("kernelrl_queued", "Evaluations that wait.", lambda: server.queue.queued)
        server.metrics.watch("kernelrl_capacity", "Evaluations that may be in progress.", lambda: server.queue.capacity)

    async def _openapi(self, request: Request, client: Client) -> Response:
        return Response(self._document, media_type="application/json")

    async def _respond(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            response = await self._handled(endpoint, request)
        except Problem as problem:
            response = self._problem_response(problem)
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody receives it
        except Exception:
            logger.exception("%s %s failed", endpoint.method, endpoint.path)
            response = self._problem_response(Problem("internal", "the server's log has the reason"))
        self._server.metrics.request(endpoint.path, response.status_code)
        response.headers[VERSION_HEADER] = API_VERSION
        return response

    async def _handled(self, endpoint: Endpoint, request: Request) -> Response:
        with self._admission.admitted(request, is_open=endpoint.is_open) as client, as_problems():
            arguments: list[Any] = [request, client]
            if endpoint.body is not None:
                arguments.append(read_body(endpoint.body, await read_json(request, self._server.limits)))
            response: Response = await endpoint.handle(*arguments)
            return response

    async def _serve_socket(self, socket: WebSocket) -> None:
        try:
            if "origin" in socket.headers:
                # A page in a browser, which may open WebSockets to any address.
                raise Problem("host", "this server accepts no WebSockets of web pages")
            with self._admission.admitted(socket) as client:
                await openenv.serve_session(self._server, socket, client)
        except Problem as problem:
            await socket.send_denial_response(self._problem_response(problem))

    async def _refuse(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        name = "method" if status == 405 else "not-found"
        detail = "the path has no such method" if name == "method" else "there is no such path"
        response = Problem(name, detail, fix="see /openapi.json").response()
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        self._server.metrics.request("other", status)
        response.headers[VERSION_HEADER] = API_VERSION
        return response

    def _problem_response(self, problem: Problem) -> Response:
        problem.detail = self._server.redact.text(problem.detail)
        problem.fix = self._server.redact.text(problem.fix)
        return problem.response()
