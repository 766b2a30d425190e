"""Episodes for clients of OpenEnv: `reset`, `step` and `state`, as messages of a WebSocket and as requests.

A WebSocket at `/openenv/ws` is a session with one episode at a time, as OpenEnv's clients open it. The requests below
`/openenv` name the episode instead. Source of the format: openenv-core 0.3.0, `openenv.core.env_server`; that of
openenv 0.10.0 is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from kernelrl_core.api import API_VERSION, __version__
from kernelrl_core.api.evaluators import Finding, Outcome, Verdict
from kernelrl_core.api.policies import Message
from kernelrl_core.api.recipes import object_schema
from kernelrl_service.bodies import EpisodeBody, EpisodeResource, NextPrompt, TurnBody, TurnResource
from kernelrl_service.catalogue import Served
from kernelrl_service.problems import Problem, as_problems
from kernelrl_service.requests import attended, json_response, parsed, while_connected
from kernelrl_service.schema import Endpoint, read_body
from kernelrl_service.server import Server
from kernelrl_service.tokens import Client

__all__ = ["SOCKET", "endpoints", "serve_session"]

_PREFIX = "/openenv"
SOCKET = f"{_PREFIX}/ws"
"""Path of the WebSocket."""
_SEED_RANGE = 2**31
_UNREAD = 4
"""Messages of a session that are read before the one in progress is finished."""
_CODES: Mapping[str, str] = {"json": "INVALID_JSON", "invalid": "VALIDATION_ERROR", "too-many": "CAPACITY_REACHED"}
"""Problem -> OpenEnv's code of an error; `EXECUTION_ERROR` for all others."""
_METHOD_NOT_FOUND = -32601
"""Code of JSON-RPC 2.0."""


@attrs.frozen
class Reset:
    """Options of a new episode."""

    recipe: str | None = None
    """Served recipe; null: the only one."""
    task: str | None = None
    """Id of a task of the recipe; null: selected by `seed`."""
    seed: int | None = None
    """Selects a task; null: a random one."""
    purpose: Literal["train", "eval"] = "train"
    """Training tasks, or those of the held-out split; also selects the temperature of `prompt`."""
    context_tokens: int = attrs.field(default=32_768, validator=attrs.validators.ge(256))
    """Maximum tokens of prompt and reply together; prompt tokens are estimated at 3 bytes per token."""
    episode_id: str | None = None
    """Name of the episode in the state of a session; null: its id here."""


@attrs.frozen
class Action:
    """A reply of the model."""

    reply: str
    """Text of the reply, after the prefill of the prompt."""
    stop_reason: Literal["stop", "length"] = "stop"
    """`length`: the reply was cut off."""
    thinking: str | None = None
    """Thinking that was separated from the reply."""
    episode_id: str | None = None
    """Episode of a request; null in a session."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """Not read; part of every action of OpenEnv."""


@attrs.frozen
class Step:
    """A request with an action."""

    action: Action
    """The action."""


@attrs.frozen
class Observation:
    """The next prompt, and the evaluation of the reply before it."""

    episode_id: str
    """Id of the episode."""
    recipe: str
    """Its recipe."""
    task: str
    """Its task."""
    messages: tuple[Message, ...] = ()
    """Messages of the next prompt; empty after the last turn."""
    prompt: NextPrompt | None = None
    """The next prompt with its sampling settings; null after the last turn."""
    outcome: Outcome | None = None
    """Outcome of the reply; null after a reset, like all fields below."""
    verdict: Verdict | None = None
    """Worst severity of the findings."""
    compiled: bool | None = None
    """Whether the build succeeded."""
    correct: bool | None = None
    """Whether the outcome is `correct`."""
    speedup: float | None = None
    """Speedup of a correct kernel; null where it was not measured."""
    parts: Mapping[str, float] | None = None
    """Weighted contribution of each reward component."""
    findings: tuple[Finding, ...] | None = None
    """Findings."""
    message: str | None = None
    """Reason for the outcome."""
    feedback: str | None = None
    """Text about this turn in the next prompt."""


@attrs.frozen
class Result:
    """An observation with the reward of the reply before it."""

    observation: Observation
    """The observation."""
    reward: float | None
    """Score of the turn; null after a reset."""
    done: bool
    """True after the last turn."""


@attrs.frozen
class State:
    """The state of an episode; all fields are null without one."""

    episode_id: str | None = None
    """Id of the episode, or the name that the client gave it."""
    step_count: int = 0
    """Finished turns."""
    recipe: str | None = None
    """Its recipe."""
    task: str | None = None
    """Its task."""
    done: bool | None = None
    """Whether it has ended."""


# --- requests ---------------------------------------------------------------------------------------------------------


def endpoints(server: Server) -> Sequence[Endpoint]:
    """The endpoints below `/openenv`."""
    served, episodes, closing = server.catalogue.served, server.episodes, server.queue.closing
    episode = ("unknown-task", "unknown-recipe", "infrastructure", "queue-full", "disk")

    async def health(request: Request, client: Client) -> Response:
        return json_response({"status": "healthy"})

    async def metadata(request: Request, client: Client) -> Response:
        return json_response(
            {
                "name": "kernelrl",
                "description": "GPU kernels for PyTorch references, built, compared, timed and checked for hacks.",
                "version": __version__,
                "recipes": list(served.recipes),
            }
        )

    async def schema(request: Request, client: Client) -> Response:
        return json_response(
            {"action": object_schema(Action), "observation": object_schema(Observation), "state": object_schema(State)}
        )

    async def document(request: Request, client: Client) -> Response:
        # OpenEnv looks for the paths of one environment below its address; `/openapi.json` has all of this server.
        operation: dict[str, Any] = {}
        paths = {"/reset": {"post": operation}, "/step": {"post": operation}, "/state": {"get": operation}}
        return json_response(
            {"openapi": "3.1.0", "info": {"title": "kernelrl", "version": API_VERSION}, "paths": paths}
        )

    async def reset(request: Request, client: Client, body: Reset) -> Response:
        opened = await episodes.open(_episode(served, body), client.name)
        return json_response(server.redacted(_first(opened)))

    async def step(request: Request, client: Client, body: Step) -> Response:
        id_ = body.action.episode_id
        if id_ is None:
            raise Problem("invalid", "action.episode_id: a request must name its episode",
                          fix="send the episode_id of the observation, or use the WebSocket")  # fmt: skip
        shown = await episodes.show(id_, client.name)
        turn = await while_connected(request, closing, episodes.turn(id_, _turn(body.action), client.name))
        return json_response(server.redacted(_after(shown, turn)))

    async def state(request: Request, client: Client) -> Response:
        id_ = request.query_params.get("episode_id")
        shown = await episodes.show(id_, client.name) if id_ else None
        return json_response(server.redacted(_state(shown)))

    async def tools(request: Request, client: Client, body: dict[str, Any]) -> Response:
        error = {"code": _METHOD_NOT_FOUND, "message": "this environment has no tools; use reset and step"}
        return json_response({"jsonrpc": "2.0", "id": body.get("id"), "error": error})

    return (
        Endpoint("GET", f"{_PREFIX}/health", "OpenEnv: state of the server", health, [(200, dict, "Healthy")], (),
                 is_open=True),
        Endpoint("GET", f"{_PREFIX}/metadata", "OpenEnv: name and description", metadata, [(200, dict, "Both")], ()),
        Endpoint("GET", f"{_PREFIX}/schema", "OpenEnv: schemas", schema,
                 [(200, dict, "Of action, observation and state")], ()),
        Endpoint("GET", f"{_PREFIX}/openapi.json", "OpenEnv: paths", document, [(200, dict, "OpenAPI 3.1")], (),
                 is_open=True),
        Endpoint("POST", f"{_PREFIX}/reset", "OpenEnv: open an episode", reset,
                 [(200, Result, "The first prompt")], episode, body=Reset),
        Endpoint("POST", f"{_PREFIX}/step", "OpenEnv: evaluate a reply", step,
                 [(200, Result, "The reward and the next prompt")], (*episode, "not-found", "conflict"), body=Step),
        Endpoint("GET", f"{_PREFIX}/state", "OpenEnv: state of the episode of the parameter episode_id", state,
                 [(200, State, "The state")], ("not-found",)),
        Endpoint("POST", f"{_PREFIX}/mcp", "OpenEnv: there are no tools", tools, [(200, dict, "An error of JSON-RPC")],
                 (), body=dict),
    )  # fmt: skip


# --- sessions ---------------------------------------------------------------------------------------------------------


async def serve_session(server: Server, socket: WebSocket, client: Client) -> None:
    """Serve a session until its client or the server closes. Its episode is removed at the end."""
    await socket.accept()
    session = _Session(server, client)
    messages: asyncio.Queue[str | None] = asyncio.Queue(_UNREAD)
    # It is done when the client has disconnected.
    reader = asyncio.ensure_future(_read(socket, messages))
    try:
        with contextlib.suppress(ClientDisconnect, WebSocketDisconnect):
            while (text := await attended(server.queue.closing, messages.get(), reader)) is not None:
                answer = await _answered(server, session, text, reader)
                if answer is None:
                    await socket.close()
                    return
                await socket.send_text(orjson.dumps(answer).decode())
    except Problem:  # the server closes
        await socket.close(1012)
    finally:
        reader.cancel()
        await session.close()


async def _read(socket: WebSocket, messages: asyncio.Queue[str | None]) -> None:
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await messages.put(await socket.receive_text())


class _Session:
    """The episode of a WebSocket."""

    def __init__(self, server: Server, client: Client) -> None:
        self._server, self._client = server, client
        self._name = ""
        self._episode: EpisodeResource | None = None

    async def reset(self, body: Reset) -> Result:
        """Open another episode."""
        chosen = _episode(self._server.catalogue.served, body)
        await self.close()
        opened = await self._server.episodes.open(chosen, self._client.name)
        self._episode, self._name = opened, body.episode_id or opened.id
        return _first(opened)

    async def step(self, action: Action, gone: asyncio.Future[Any]) -> Result:
        """Evaluate a reply."""
        if self._episode is None:
            raise Problem("conflict", "the session has no episode", fix="send reset first")
        turn = self._server.episodes.turn(self._episode.id, _turn(action), self._client.name)
        return _after(self._episode, await attended(self._server.queue.closing, turn, gone))

    async def state(self) -> State:
        """The state of the episode."""
        if self._episode is None:
            return State()
        shown = await self._server.episodes.show(self._episode.id, self._client.name)
        return attrs.evolve(_state(shown), episode_id=self._name)

    async def close(self) -> None:
        """Remove the episode."""
        episode, self._episode = self._episode, None
        if episode is not None:
            with contextlib.suppress(Problem):  # it was removed because it was too old
                await self._server.episodes.close(episode.id, self._client.name)


async def _answered(server: Server, session: _Session, text: str, gone: asyncio.Future[Any]) -> dict[str, Any] | None:
    """The message that responds to one of the client; None to the last one."""
    try:
        with as_problems():
            message = _message(text)
            kind, data = message.get("type"), message.get("data", {})
            if kind == "reset":
                return {
                    "type": "observation",
                    "data": server.redacted(await session.reset(read_body(Reset, data))),
                }
            if kind == "step":
                result = await session.step(read_body(Action, data), gone)
                return {"type": "observation", "data": server.redacted(result)}
            if kind == "state":
                return {"type": "state", "data": server.redacted(await session.state())}
            if kind == "close":
                return None
            return _error(f"unknown type {str(kind)[:40]!r}; known: reset, step, state, close", "UNKNOWN_TYPE")
    except Problem as problem:
        text = f"{problem.detail}; {problem.fix}" if problem.fix else problem.detail
        return _error(server.redacted(text), _CODES.get(problem.name, "EXECUTION_ERROR"))


def _message(text: str) -> dict[str, Any]:
    message = parsed(text)
    if not isinstance(message, dict):
        raise Problem("invalid", "the message must be an object")
    return message


def _error(message: str, code: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code}}


# --- values -----------------------------------------------------------------------------------------------------------


def _episode(served: Served, body: Reset) -> EpisodeBody:
    """The episode of a reset.

    Raises:
        Problem: it names no recipe and several are served, or the recipe has no task of its purpose.
    """
    names = list(served.recipes)
    recipe = body.recipe or (names[0] if len(names) == 1 else None)
    if recipe is None:
        known = ", ".join(names) or "none"
        raise Problem("unknown-recipe", f"the reset names no recipe; served: {known}", fix="send recipe")
    task = body.task
    if task is None and recipe in served.recipes:
        found = served.recipes[recipe]
        held_out = found.recipe.eval.split
        ids = [one.id for one in found.tasks.values() if (one.split == held_out) == (body.purpose == "eval")]
        if not ids:
            raise Problem("unknown-task", f"recipe {recipe!r} has no tasks for {body.purpose}", fix="send task")
        number = random.randrange(_SEED_RANGE) if body.seed is None else body.seed
        task = ids[number % len(ids)]
    return EpisodeBody(task or "", recipe, body.purpose, body.context_tokens)


def _turn(action: Action) -> TurnBody:
    return TurnBody(reply=action.reply, stop_reason=action.stop_reason, thinking=action.thinking)


def _observation(episode: EpisodeResource, following: NextPrompt | None, **evaluated: Any) -> Observation:
    messages = following.messages if following is not None else ()
    return Observation(episode.id, episode.recipe, episode.task, messages, following, **evaluated)


def _first(opened: EpisodeResource) -> Result:
    return Result(_observation(opened, opened.next), None, opened.done)


def _after(episode: EpisodeResource, turn: TurnResource) -> Result:
    shown = ("outcome", "verdict", "compiled", "correct", "speedup", "parts", "findings", "message", "feedback")
    evaluated = {name: getattr(turn, name) for name in shown}
    return Result(_observation(episode, turn.next, **evaluated), turn.reward, turn.done)


def _state(episode: EpisodeResource | None) -> State:
    if episode is None:
        return State()
    return State(episode.id, episode.turns, episode.recipe, episode.task, episode.done)
