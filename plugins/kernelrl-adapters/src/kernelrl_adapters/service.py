"""Scores, prompts and episodes of a running `kernelrl serve`, for trainers on other machines.

The server has the recipe, the tasks and the evaluator; this side sends replies and needs none of them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

from kernelrl_adapters.shared import shared
from kernelrl_core.api.errors import LookupFailed, MissingPrerequisite, suggestion

__all__ = ["Service", "shared_service"]

Row = Mapping[str, Any]
Purpose = Literal["train", "eval"]

_TIMEOUT_S = 900.0
"""A request ends with its evaluation, which may wait in the queue of the server."""
_PATIENCE_S = 600.0
_TOKEN = "KERNELRL_SERVICE_TOKEN"


class Service:
    """Servers of `kernelrl serve` with a recipe of the same name. An episode stays on one server: give one address.

    Args:
        urls: addresses, as those of evaluator `http`.
        recipe: name of a recipe that they serve.
    """

    def __init__(self, urls: Sequence[str], recipe: str) -> None:
        try:
            from kernelrl_plugin_http.servers import Servers
        except ModuleNotFoundError as error:
            raise MissingPrerequisite(
                "a service needs evaluator http", fix="pip install 'kernelrl-adapters[service]'"
            ) from error
        self.recipe = recipe
        token = os.environ.get(_TOKEN, "")
        self._servers = Servers(urls, token, _TIMEOUT_S, _PATIENCE_S, has_own_parts=False)

    async def start(self) -> None:
        """Reach the servers; may be called again.

        Raises:
            MissingPrerequisite: none responds, or one has another API version or refuses the token.
            LookupFailed: they do not serve the recipe.
        """
        await self._servers.start()
        served = self._servers.facts["recipes"]
        if self.recipe not in served:
            raise LookupFailed(
                f"the server has no recipe {self.recipe!r}; {suggestion(self.recipe, served)}",
                fix=f"kernelrl serve --recipe {self.recipe}",
            )

    async def score(self, task: str, reply: str, *, thinking: str | None = None, purpose: Purpose = "train") -> Row:
        """The turn of a reply to the first prompt of a task: `reward`, `parts`, `outcome`, `correct`, ….

        Raises:
            InfrastructureError: the evaluation failed, which says nothing about the reply.
            UsageError: the server has no such task.
        """
        body = {"recipe": self.recipe, "task": task, "reply": reply, "thinking": thinking, "purpose": purpose}
        return await self._post("/v1/score", body)

    async def tasks(self, split: str) -> list[str]:
        """Ids of the recipe's tasks of a split."""
        listed = await self._servers.run(lambda server: server.get("/v1/tasks"))
        rows = [row for row in listed["tasks"] if self.recipe in row["recipes"]]
        known = {row["split"] for row in rows}
        if split not in known:
            raise LookupFailed(f"recipe {self.recipe!r} has no tasks of split {split!r}; {suggestion(split, known)}")
        return [row["id"] for row in rows if row["split"] == split]

    async def first_prompts(self, split: str, purpose: Purpose) -> AsyncIterator[tuple[str, Row]]:
        """Task and first prompt (`messages` and sampling settings) of each task of a split."""
        for task in await self.tasks(split):
            opened = await self.open(task, purpose)
            await self.close(opened["id"])
            yield task, opened["next"]

    async def open(self, task: str, purpose: Purpose, context_tokens: int | None = None) -> Row:
        """A new episode: `id`, and the first prompt as `next`."""
        body = {"recipe": self.recipe, "task": task, "purpose": purpose}
        return await self._post(
            "/v1/episodes", body if context_tokens is None else {**body, "context_tokens": context_tokens}
        )

    async def turn(self, episode: str, number: int, reply: str, stop_reason: str, thinking: str | None) -> Row:
        """The turn of a reply, with the next prompt as `next`. Raises like `score`."""
        body = {"turn": number, "reply": reply, "stop_reason": stop_reason, "thinking": thinking}
        return await self._post(f"/v1/episodes/{quote(episode, safe='')}/turns", body)

    async def close(self, episode: str) -> None:
        """Remove an episode."""
        await self._servers.run(lambda server: server.delete(f"/v1/episodes/{quote(episode, safe='')}"))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._servers.aclose()

    async def _post(self, path: str, body: Mapping[str, Any]) -> Row:
        return await self._servers.run(lambda server: server.post(path, body))


async def shared_service(urls: Sequence[str], recipe: str) -> Service:
    """The started client of the running event loop; closed when `asyncio.run` ends. Raises like `Service.start`."""
    service = cast(Service, await shared(f"{recipe} {' '.join(urls)}", lambda: Service(urls, recipe)))
    await service.start()
    return service
