"""Episodes over HTTP: one `EpisodeRunner` per episode, whose finished turns are in the journal."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import attrs
import orjson

from kernelrl_core.api.episodes import EpisodeId, EpisodeRunner, Sampled, Turn
from kernelrl_core.api.errors import InfrastructureError
from kernelrl_core.api.evaluators import from_json, to_json
from kernelrl_core.api.policies import Message, Prompt, Reply, estimated_prompt
from kernelrl_service.bodies import (
    EpisodeBody,
    EpisodeResource,
    NextPrompt,
    ScoreBody,
    TurnBody,
    TurnResource,
)
from kernelrl_service.catalogue import Catalogue
from kernelrl_service.journal import Journal
from kernelrl_service.options import Limits
from kernelrl_service.problems import Problem
from kernelrl_service.queue import EvaluationQueue

__all__ = ["Episodes"]

_IN_MEMORY = 512
_ATTEMPTS = 2**31
_FAR_FROM_LIMITS = 32_768


@attrs.define
class _Renderer:
    """Estimates the number of prompt tokens, for a client that applies its own chat template."""

    context_tokens: int

    def render(self, messages: Sequence[Message]) -> Prompt:
        return estimated_prompt(messages)


@attrs.frozen
class _Settings:
    """Everything that makes the runner of an episode, beside its turns."""

    body: EpisodeBody
    attempt: int
    """Number of the episode, which makes its sampling seeds differ from those of others."""
    recipe_sha256: str
    task_sha256: str


@attrs.define(eq=False)
class _Open:
    settings: _Settings
    client: str
    runner: EpisodeRunner
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)


class Episodes:
    """The open episodes of a server. Those used last are in memory; the others are read from the journal."""

    def __init__(self, catalogue: Catalogue, journal: Journal, queue: EvaluationQueue, limits: Limits) -> None:
        self._catalogue, self._journal, self._queue, self._limits = catalogue, journal, queue, limits
        self._open: OrderedDict[str, _Open] = OrderedDict()

    async def open(self, body: EpisodeBody, client: str) -> EpisodeResource:
        """Open an episode.

        Raises:
            Problem: recipe or task is not served, or the client has too many episodes.
            UsageError: the prompt does not fit into the context.
            StorageError: the journal cannot be written.
        """
        recipe = self._catalogue.recipe(body.recipe)
        task = self._catalogue.task_of(recipe, body.task)
        if await self._journal.open_episodes(client) >= self._limits.episodes_per_client:
            detail = f"this client has {self._limits.episodes_per_client} open episodes"
            raise Problem("too-many", detail, fix="delete episodes that have ended", retry_after_s=60)
        settings = _Settings(body, secrets.randbelow(_ATTEMPTS), recipe.sha256, task.sha256)
        id_ = secrets.token_hex(16)
        runner = await self._runner(settings, ())
        opened = self._resource(id_, body, runner)
        await self._journal.open_episode(id_, client, orjson.dumps(to_json(settings)))
        self._keep(id_, _Open(settings, client, runner))
        return opened

    async def show(self, id_: str, client: str) -> EpisodeResource:
        """An episode.

        Raises:
            Problem: the client has no such episode.
        """
        found = await self._find(id_, client)
        return self._resource(id_, found.settings.body, found.runner)

    async def close(self, id_: str, client: str) -> None:
        """Remove an episode.

        Raises:
            Problem: the client has no such episode.
        """
        await self._find(id_, client)
        await self._journal.close_episode(id_)
        self._open.pop(id_, None)

    async def turn(self, id_: str, body: TurnBody, client: str) -> TurnResource:
        """Evaluate the reply to the current prompt; a repeated reply gets the response that it got.

        Raises:
            Problem: the client has no such episode, it has ended, or has another turn at this number; the reply is too
                large, or the queue is full.
            InfrastructureError: the evaluation failed; the episode is unchanged.
        """
        self._require_room(body.reply, client)
        found = await self._find(id_, client)
        async with found.lock:
            runner, number = found.runner, len(found.runner.turns)
            if body.turn is not None and body.turn != number:
                return await self._repeated(found, body)
            if runner.next_prompt() is None:
                raise Problem("conflict", "the episode has ended", fix="open another one")
            try:
                turn = await _submit(runner, body)
                await self._journal.add_turn(id_, number, orjson.dumps(to_json(turn)))
            except BaseException:
                # The runner may be ahead of the journal; the next use makes another one from it.
                self._open.pop(id_, None)
                raise
            return _turn_resource(number, turn, _next(runner))

    async def score(self, body: ScoreBody, client: str) -> TurnResource:
        """Evaluate a reply to the first prompt of a task; no episode stays open.

        Raises:
            Problem: recipe or task is not served, the reply is too large, or the queue is full.
            InfrastructureError: the evaluation failed.
        """
        self._require_room(body.reply, client)
        recipe = self._catalogue.recipe(body.recipe)
        task = self._catalogue.task_of(recipe, body.task)
        episode = EpisodeBody(body.task, body.recipe, body.purpose, context_tokens=_FAR_FROM_LIMITS)
        runner = await self._runner(_Settings(episode, 0, recipe.sha256, task.sha256), ())
        turn = await _submit(runner, TurnBody(body.reply, body.stop_reason, body.thinking))
        return _turn_resource(0, turn, None)

    def _require_room(self, reply: str, client: str) -> None:
        self._catalogue.require_size("reply", reply)
        self._queue.require_room(client)

    async def _runner(self, settings: _Settings, turns: Sequence[Turn]) -> EpisodeRunner:
        body = settings.body
        recipe = self._catalogue.recipe(body.recipe)
        task = self._catalogue.task_of(recipe, body.task)
        if (recipe.sha256, task.sha256) != (settings.recipe_sha256, settings.task_sha256):
            raise Problem("not-found", "the server has another version of the recipe or the task than the episode",
                          fix="open another episode")  # fmt: skip
        environment = self._catalogue.environments[body.recipe]
        examples = await environment.examples(task, turns[0] if turns else None)
        where = EpisodeId(body.purpose, 0, 0, settings.attempt)
        return EpisodeRunner(environment, task, where, _Renderer(body.context_tokens), examples=examples, turns=turns)

    async def _find(self, id_: str, client: str) -> _Open:
        found = self._open.get(id_)
        if found is None:
            row = await self._journal.episode(id_)
            if row is not None and row.client == client:
                settings = from_json(_Settings, orjson.loads(row.settings))
                turns = tuple(from_json(Turn, orjson.loads(turn)) for turn in row.turns)
                runner = await self._runner(settings, turns)
                # Another request may have read it meanwhile; both must use one runner.
                found = self._open.get(id_) or _Open(settings, client, runner)
        if found is None or found.client != client:
            raise Problem("not-found", "there is no such episode", fix="open another one")
        self._keep(id_, found)
        return found

    def _keep(self, id_: str, episode: _Open) -> None:
        self._open[id_] = episode
        self._open.move_to_end(id_)
        while len(self._open) > _IN_MEMORY:
            oldest = next((key for key, one in self._open.items() if not one.lock.locked()), None)
            if oldest is None:
                return
            del self._open[oldest]

    async def _repeated(self, found: _Open, body: TurnBody) -> TurnResource:
        """The response that an earlier turn got."""
        number, turns = body.turn or 0, found.runner.turns
        if not 0 <= number < len(turns):
            raise Problem("conflict", f"the next turn of the episode is {len(turns)}, not {number}")
        turn = turns[number]
        given = (body.reply, body.stop_reason, body.thinking)
        if (turn.reply.text, turn.reply.stop_reason, turn.reply.thinking) != given:
            raise Problem("conflict", f"turn {number} of the episode has another reply")
        as_it_was = await self._runner(found.settings, turns[: number + 1])
        return _turn_resource(number, turn, _next(as_it_was))

    def _resource(self, id_: str, body: EpisodeBody, runner: EpisodeRunner) -> EpisodeResource:
        following = _next(runner)
        return EpisodeResource(id_, body.task, body.recipe, len(runner.turns), following is None, following)


async def _submit(runner: EpisodeRunner, body: TurnBody) -> Turn:
    request = runner.next_prompt()
    if request is None:
        raise Problem("conflict", "the episode has ended", fix="open another one")
    reply = Reply(body.reply, (), (), body.stop_reason, body.thinking)
    turn = await runner.submit(request, Sampled(reply))
    if turn.masked:
        raise InfrastructureError(turn.message)
    return turn


def _next(runner: EpisodeRunner) -> NextPrompt | None:
    request = runner.next_prompt()
    if request is None:
        return None
    settings = request.settings
    return NextPrompt(
        turn=len(runner.turns),
        messages=request.prompt.messages,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        stop=tuple(settings.stop or ()),
        seed=settings.seed,
    )


def _turn_resource(number: int, turn: Turn, following: NextPrompt | None) -> TurnResource:
    evaluation: Any = turn.evaluation
    return TurnResource(
        turn=number,
        reward=turn.score.total,
        parts=turn.score.parts,
        outcome=turn.outcome,
        verdict=turn.verdict,
        compiled=evaluation is not None and evaluation.compiled,
        correct=turn.correct,
        speedup=turn.speedup,
        verified=turn.verified,
        findings=turn.findings,
        message=turn.message,
        feedback=turn.feedback,
        done=following is None,
        next=following,
    )
