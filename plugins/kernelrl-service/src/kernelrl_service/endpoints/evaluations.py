"""Endpoints of evaluations: accept one or several, look at one, cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from kernelrl_core.api.episodes import request_key
from kernelrl_core.api.evaluators import to_json
from kernelrl_service.bodies import BatchBody, BatchResource, EvaluationBody, EvaluationResource
from kernelrl_service.problems import Problem
from kernelrl_service.queue import Accepted, Job
from kernelrl_service.requests import POLL_S, disconnected, wait_of
from kernelrl_service.schema import Endpoint
from kernelrl_service.server import Server
from kernelrl_service.tokens import Client

__all__ = ["endpoints"]


def endpoints(server: Server) -> Sequence[Endpoint]:
    """The endpoints below `/v1/evaluations`."""
    evaluations = _Evaluations(server)
    unfinished = "Not finished; see Location and Retry-After"
    result = ((200, EvaluationResource, "Finished"), (202, EvaluationResource, unfinished))
    admission = ("inline-task", "unknown-task", "unknown-backend", "queue-full", "disk")
    return (
        Endpoint("POST", "/v1/evaluations", "Evaluate a candidate", evaluations.post, result, admission,
                 body=EvaluationBody, waits=True),
        Endpoint("POST", "/v1/evaluations/batch", "Evaluate several candidates", evaluations.post_batch,
                 [(200, BatchResource, "All are finished"), (202, BatchResource, "Not all are finished")],
                 admission, body=BatchBody, waits=True),
        Endpoint("GET", "/v1/evaluations/{id}", "An evaluation", evaluations.get, result, ("not-found",), waits=True),
        Endpoint("DELETE", "/v1/evaluations/{id}", "Cancel an evaluation that is not finished", evaluations.delete,
                 [(204, None, "It is cancelled, or was finished")], ("not-found",)),
    )  # fmt: skip


class _Evaluations:
    def __init__(self, server: Server) -> None:
        self._server, self._queue = server, server.queue

    async def post(self, request: Request, client: Client, body: EvaluationBody) -> Response:
        wait_s = wait_of(request, self._server.limits)
        (accepted,), _ = await self._accept([body], client, wait_s)
        (response,) = await self._responses(request, client, [accepted], wait_s)
        return _response(accepted, response)

    async def post_batch(self, request: Request, client: Client, body: BatchBody) -> Response:
        wait_s, limit = wait_of(request, self._server.limits), self._server.limits.batch
        if len(body.requests) > limit:
            raise Problem("too-large", f"the batch has {len(body.requests)} requests; the limit is {limit}")
        accepted, order = await self._accept(body.requests, client, wait_s)
        responses = await self._responses(request, client, accepted, wait_s)
        found = {one.id: _resource(one, response) for one, response in zip(accepted, responses, strict=True)}
        is_finished = all(response is not None for response in responses)
        content = b'{"evaluations":[' + b",".join(found[id_] for id_ in order) + b"]}"
        headers = {} if is_finished else {"Retry-After": str(POLL_S)}
        return Response(content, 200 if is_finished else 202, headers, media_type="application/json")

    async def get(self, request: Request, client: Client) -> Response:
        id_, wait_s = request.path_params["id"], wait_of(request, self._server.limits)
        job = self._queue.job(id_, client.name)
        if job is None:
            stored = await self._queue.find(id_, client.name)
            if stored is None:
                raise Problem("not-found", "there is no such evaluation", fix="post it again")
            return _response(Accepted(id_, None, stored), stored)
        # A client that looks at an evaluation wants it, also after this request.
        job.kept_by.add(client.name)
        accepted = Accepted(id_, job, None)
        (response,) = await self._responses(request, client, [accepted], wait_s)
        return _response(accepted, response)

    async def delete(self, request: Request, client: Client) -> Response:
        id_ = request.path_params["id"]
        job = self._queue.job(id_, client.name)
        if job is not None:
            await self._queue.release(job, client.name)
        elif await self._queue.find(id_, client.name) is None:
            raise Problem("not-found", "there is no such evaluation")
        return Response(status_code=204)

    async def _accept(
        self, bodies: Sequence[EvaluationBody], client: Client, wait_s: float
    ) -> tuple[list[Accepted], list[str]]:
        """The accepted evaluations, each once, and the ids in the order of the bodies."""
        requests = [await self._server.catalogue.request(body, client) for body in bodies]
        order = [request_key(request, self._server.identity) for request in requests]
        documents = {id_: orjson.dumps(to_json(request)) for id_, request in zip(order, requests, strict=True)}
        return await self._queue.accept(documents, client.name, keep=wait_s == 0), order

    async def _responses(
        self, request: Request, client: Client, accepted: Sequence[Accepted], wait_s: float
    ) -> list[bytes | None]:
        """The responses that exist within the time; None for the others."""
        jobs = [one.job for one in accepted if one.job is not None]
        if not jobs or wait_s == 0:
            return [one.response for one in accepted]
        gone = asyncio.ensure_future(disconnected(request))

        async def response(job: Job | None, stored: bytes | None) -> bytes | None:
            return stored if job is None else await self._queue.wait(job, client.name, gone, wait_s)

        try:
            found = await asyncio.gather(*(response(one.job, one.response) for one in accepted))
            if gone.done():
                raise ClientDisconnect
            return found
        finally:
            gone.cancel()


def _response(accepted: Accepted, response: bytes | None) -> Response:
    headers = {"Location": f"/v1/evaluations/{accepted.id}"}
    if response is None:
        headers["Retry-After"] = str(POLL_S)
    content = _resource(accepted, response)
    return Response(content, 202 if response is None else 200, headers, media_type="application/json")


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
