"""A resources server of NeMo Gym: `/seed_session` and `/verify` score the reply to the first prompt of a task.

A row of the data set has the keys `task` and, where several recipes are served, `recipe`, beside
`responses_create_params` with the prompt. NeMo Gym's clients know a server by host and port, so the paths have no
prefix. Source of the format: nemo-gym 0.7.0, `nemo_gym/base_resources_server.py`, `nemo_gym/config_types.py` and
`environment_servers/single_agent_turn/app.py`.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from kernelrl_service.bodies import ScoreBody, TurnResource
from kernelrl_service.catalogue import Catalogue
from kernelrl_service.problems import Problem
from kernelrl_service.requests import json_response, while_connected
from kernelrl_service.schema import Endpoint
from kernelrl_service.server import Server
from kernelrl_service.tokens import Client

__all__ = ["endpoints"]

Row = dict[str, Any]

_SESSION = "resources_session_id"
"""Key of the requests of an environment server; agents have none."""
_COPIED = ("responses_create_params", "response")
"""Keys of a verified row that are no results."""


def endpoints(server: Server) -> Sequence[Endpoint]:
    """The endpoints of a resources server."""

    async def seed_session(request: Request, client: Client, body: Row) -> Response:
        if _SESSION not in body:  # from an agent
            _chosen(server.catalogue, body)
            return json_response({})
        row = body.get("task_data")
        if not isinstance(row, dict):
            raise Problem("invalid", "task_data must be an object")
        _chosen(server.catalogue, row)
        response = json_response({_SESSION: body[_SESSION]})
        # An environment server refuses a session without a cookie. No state is kept, so its value has no meaning.
        response.set_cookie("session", "stateless", httponly=True)
        return response

    async def close_session(request: Request, client: Client, body: Row) -> Response:
        return json_response({_SESSION: body.get(_SESSION)})

    async def verify(request: Request, client: Client, body: Row) -> Response:
        recipe, task = _chosen(server.catalogue, body)
        text, thinking, stop_reason = _reply(body)
        scored = ScoreBody(task, recipe, text, stop_reason, thinking)
        turn = await while_connected(request, server.queue.closing, server.episodes.score(scored, client.name))
        return json_response({**body, **server.redacted(_result(turn))})

    async def aggregate_metrics(request: Request, client: Client, body: Row) -> Response:
        rows = body.get("verify_responses")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Problem("invalid", "verify_responses must be a list of objects")
        means = _means(rows)
        key_metrics = {name: means[name] for name in ("mean/reward", "mean/correct") if name in means}
        return json_response({"group_level_metrics": [], "agent_metrics": means, "key_metrics": key_metrics})

    async def reverify_mode(request: Request, client: Client) -> Response:
        return json_response("stateless")

    scoring = ("unknown-task", "unknown-recipe", "infrastructure", "queue-full", "disk")
    return (
        Endpoint("POST", "/seed_session", "NeMo Gym: check the task of a row", seed_session,
                 [(200, dict, "The session's id, if it has one")], ("unknown-task", "unknown-recipe"), body=dict),
        Endpoint("POST", "/close_session", "NeMo Gym: end a session, of which nothing is kept", close_session,
                 [(200, dict, "The id of the session")], (), body=dict),
        Endpoint("POST", "/verify", "NeMo Gym: score the response of a row", verify,
                 [(200, dict, "The row with reward, reward_components and metrics")], scoring, body=dict),
        Endpoint("POST", "/aggregate_metrics", "NeMo Gym: means of verified rows", aggregate_metrics,
                 [(200, dict, "The metrics")], (), body=dict),
        Endpoint("GET", "/reverify_mode", "NeMo Gym: whether rows can be verified again", reverify_mode,
                 [(200, None, "The text `stateless`")], ()),
    )  # fmt: skip


def _chosen(catalogue: Catalogue, row: Mapping[str, Any]) -> tuple[str, str]:
    """Recipe and task of a row.

    Raises:
        Problem: they are missing, or not served.
    """
    names = list(catalogue.served.recipes)
    recipe = row.get("recipe", names[0] if len(names) == 1 else None)
    task = row.get("task")
    for name, value in (("recipe", recipe), ("task", task)):
        if not isinstance(value, str):
            raise Problem(
                "invalid", f"{name}: a row needs the name of its {name}", fix=f"add the key {name!r} to the row"
            )
    return str(recipe), catalogue.task_of(catalogue.recipe(str(recipe)), str(task)).id


def _reply(row: Mapping[str, Any]) -> tuple[str, str | None, Literal["stop", "length"]]:
    """Text, thinking, and the reason for the end of a response of OpenAI's Responses API.

    Raises:
        Problem: the row has no such response.
    """
    response = row.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    if not isinstance(output, list):
        raise Problem("invalid", "response.output: expected a list of output items")
    items = [item for item in output if isinstance(item, Mapping)]
    messages = [item for item in items if item.get("type") == "message" and item.get("role") == "assistant"]
    text = "".join(_texts(messages[-1].get("content"), "output_text")) if messages else ""
    reasoning = [item for item in items if item.get("type") == "reasoning"]
    words = [
        "".join(_texts(item.get("content"), "reasoning_text") or _texts(item.get("summary"), "summary_text"))
        for item in reasoning
    ]
    thinking = "\n".join(filter(None, words)) or None
    details = response.get("incomplete_details") if isinstance(response, Mapping) else None
    is_cut = isinstance(details, Mapping) and details.get("reason") == "max_output_tokens"
    whole = f"<think>\n{thinking}\n</think>\n\n{text}" if thinking else text
    return whole, thinking, "length" if is_cut else "stop"


def _texts(parts: Any, kind: str) -> list[str]:
    if not isinstance(parts, list):
        return [parts] if isinstance(parts, str) else []
    return [str(part.get("text", "")) for part in parts if isinstance(part, Mapping) and part.get("type") == kind]


def _result(turn: TurnResource) -> dict[str, Any]:
    """Reward and metrics; numbers are aggregated by NeMo Gym."""
    found: dict[str, Any] = {
        "reward": turn.reward,
        "reward_components": dict(turn.parts),
        "correct": float(turn.correct),
        "compiled": float(turn.compiled),
        "hacked": float(turn.outcome.value == "hacked"),
        "suspect": float(turn.verdict.value == "suspect"),
        "outcome": turn.outcome.value,
        "message": turn.message,
    }
    return found if turn.speedup is None else {**found, "speedup": turn.speedup}


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in _numbers(row):
            values[name].append(value)
    return {f"mean/{name}": statistics.fmean(found) for name, found in values.items()}


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if name not in _COPIED and not name.startswith("_") and isinstance(value, bool | int | float):
            yield name, float(value)
