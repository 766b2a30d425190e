"""Endpoints of episodes, and of scores of single replies."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from kernelrl_service.bodies import EpisodeBody, EpisodeResource, ScoreBody, TurnBody, TurnResource
from kernelrl_service.requests import json_response, while_connected
from kernelrl_service.schema import Endpoint
from kernelrl_service.server import Server
from kernelrl_service.tokens import Client

__all__ = ["endpoints"]


def endpoints(server: Server) -> Sequence[Endpoint]:
    """The endpoints below `/v1/episodes`, and `/v1/score`."""
    episodes, closing = server.episodes, server.queue.closing

    async def score(request: Request, client: Client, body: ScoreBody) -> Response:
        return json_response(
            server.redacted(await while_connected(request, closing, episodes.score(body, client.name)))
        )

    async def post(request: Request, client: Client, body: EpisodeBody) -> Response:
        return json_response(server.redacted(await episodes.open(body, client.name)), 201)

    async def get(request: Request, client: Client) -> Response:
        return json_response(server.redacted(await episodes.show(request.path_params["id"], client.name)))

    async def delete(request: Request, client: Client) -> Response:
        await episodes.close(request.path_params["id"], client.name)
        return Response(status_code=204)

    async def post_turn(request: Request, client: Client, body: TurnBody) -> Response:
        turn = episodes.turn(request.path_params["id"], body, client.name)
        return json_response(server.redacted(await while_connected(request, closing, turn)))

    problems = ("unknown-task", "unknown-recipe", "infrastructure", "queue-full", "disk")
    return (
        Endpoint("POST", "/v1/score", "Score a reply to the first prompt of a task", score,
                 [(200, TurnResource, "The turn")], problems, body=ScoreBody),
        Endpoint("POST", "/v1/episodes", "Open an episode", post,
                 [(201, EpisodeResource, "The episode with its first prompt")], problems, body=EpisodeBody),
        Endpoint("GET", "/v1/episodes/{id}", "An episode with its next prompt", get,
                 [(200, EpisodeResource, "The episode")], ("not-found",)),
        Endpoint("DELETE", "/v1/episodes/{id}", "Remove an episode", delete, [(204, None, "It is removed")],
                 ("not-found",)),
        Endpoint("POST", "/v1/episodes/{id}/turns", "Evaluate the reply to the current prompt", post_turn,
                 [(200, TurnResource, "The turn with the next prompt")], (*problems, "not-found", "conflict"),
                 body=TurnBody),
    )  # fmt: skip
