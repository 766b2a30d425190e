"""Sessions and requests of OpenEnv: with its own client and its own validation, and without the package."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from facade_servers import RIGHT, WRONG, recipe_server
from kernelrl_command_server import CommandServer
from kernelrl_service_process import Service

from kernelrl_testing.waiting import wait_until

TASKS = [f"fake/train/{number}" for number in range(4)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with CommandServer() as commands, recipe_server(commands, tmp_path_factory.mktemp("service")) as made:
        yield made


class Session:
    """A WebSocket as OpenEnv's clients use it."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket

    async def send(self, text: str) -> dict[str, Any]:
        await self.socket.send(text)
        answer: dict[str, Any] = json.loads(await self.socket.recv())
        return answer

    async def ask(self, kind: str, **data: Any) -> dict[str, Any]:
        return await self.send(json.dumps({"type": kind, "data": data}))

    async def observe(self, kind: str, **data: Any) -> dict[str, Any]:
        answer = await self.ask(kind, **data)
        assert answer["type"] == "observation", answer
        found: dict[str, Any] = answer["data"]
        return found


@asynccontextmanager
async def session(service: Service, **options: Any) -> AsyncIterator[Session]:
    url = service.url.replace("http://", "ws://") + "/openenv/ws"
    async with websockets.connect(url, **options) as socket:
        yield Session(socket)


def test_the_client_of_openenv_plays_an_episode(service: Service) -> None:
    generic = pytest.importorskip("openenv.core.generic_client", reason="pip install openenv")

    async def go() -> None:
        async with generic.GenericEnvClient(base_url=f"{service.url}/openenv") as env:
            first = await env.reset(task="fake/train/2", seed=1)
            assert "# train 2" in first.observation["messages"][-1]["content"]
            assert (first.reward, first.done) == (None, False)
            second = await env.step({"reply": WRONG})
            assert (second.reward, second.done) == (0.0, False)
            assert second.observation["outcome"] == "incorrect"
            assert len(second.observation["messages"]) > len(first.observation["messages"])
            state = await env.state()
            assert (state["step_count"], state["task"]) == (1, "fake/train/2")
            last = await env.step({"reply": RIGHT})
            assert (last.reward, last.done) == (0.7, True)
            with pytest.raises(RuntimeError, match="the episode has ended"):
                await env.step({"reply": RIGHT})
            assert (await env.reset()).observation["task"] in TASKS

    asyncio.run(go())


def test_the_validation_of_openenv_passes(service: Service) -> None:
    validation = pytest.importorskip("openenv.cli._validation", reason="pip install openenv")
    report = validation.validate_running_environment(f"{service.url}/openenv")
    assert [one for one in report["criteria"] if not one["passed"]] == []
    assert (report["mode"], report["passed"]) == ("simulation", True)


def test_requests_name_their_episode(service: Service) -> None:
    with httpx.Client(base_url=f"{service.url}/openenv") as http:
        first = http.post("/reset", json={"task": "fake/train/0"}).json()
        action = {"reply": RIGHT, "episode_id": first["observation"]["episode_id"]}
        last = http.post("/step", json={"action": action}).json()
        assert (last["reward"], last["done"], last["observation"]["messages"]) == (0.7, True, [])
        assert last["observation"]["parts"] == {"correct": 0.7}
        state = http.get("/state", params={"episode_id": action["episode_id"]}).json()
        assert (state["step_count"], state["done"]) == (1, True)
        refused = http.post("/step", json={"action": {"reply": RIGHT}})
        assert refused.status_code == 422
        assert "must name its episode" in refused.json()["detail"]


def test_a_seed_selects_a_task_and_the_purpose_its_split(service: Service) -> None:
    async def go() -> None:
        async with session(service) as one:
            chosen = [(await one.observe("reset", seed=seed))["observation"]["task"] for seed in (0, 1, 5)]
            assert chosen == ["fake/train/0", "fake/train/1", "fake/train/1"]
            held_out = await one.observe("reset", seed=3, purpose="eval")
            assert held_out["observation"]["task"] == "fake/held_out/3"

    asyncio.run(go())


def test_a_session_survives_mistakes(service: Service) -> None:
    async def go() -> None:
        async with session(service) as one:
            early = await one.ask("step", reply=RIGHT)
            assert early["data"]["message"] == "the session has no episode; send reset first"
            assert (await one.ask("state"))["data"]["episode_id"] is None
            codes = [
                (await one.send("{"))["data"]["code"],
                (await one.send("[]"))["data"]["code"],
                (await one.ask("jump"))["data"]["code"],
                (await one.ask("reset", tsak="fake/train/0"))["data"]["code"],
                (await one.ask("reset", task="fake/trian/0"))["data"]["code"],
            ]
            assert codes == ["INVALID_JSON", "VALIDATION_ERROR", "UNKNOWN_TYPE", "VALIDATION_ERROR", "EXECUTION_ERROR"]
            await one.observe("reset", episode_id="mine")
            assert (await one.ask("state"))["data"]["episode_id"] == "mine"
            assert (await one.observe("step", reply=RIGHT))["reward"] == 0.7

    asyncio.run(go())


def test_the_end_of_a_session_removes_its_episode(service: Service) -> None:
    async def go() -> str:
        async with session(service) as one:
            first = await one.observe("reset")
            return str(first["observation"]["episode_id"])

    id_ = asyncio.run(go())
    wait_until(lambda: httpx.get(f"{service.url}/v1/episodes/{id_}").status_code == 404, what="its removal")


def test_a_page_in_a_browser_gets_no_session(service: Service) -> None:
    async def go() -> None:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with session(service, origin="http://evil.example"):
                pass
        assert refused.value.response.status_code == 421

    asyncio.run(go())


def test_a_session_needs_the_token_which_a_url_can_hold(tmp_path: Path, command_server: CommandServer) -> None:
    from kernelrl_service.tokens import add_token

    token = add_token(tmp_path / "tokens.yaml", "alice", inline_tasks=False)

    async def go(url: str) -> float:
        async with websockets.connect(url) as socket:
            one = Session(socket)
            await one.observe("reset")
            return float((await one.observe("step", reply=RIGHT))["reward"])

    with recipe_server(command_server, tmp_path, "--tokens", "tokens.yaml") as service:
        address = service.url.removeprefix("http://")
        assert asyncio.run(go(f"ws://x:{token}@{address}/openenv/ws")) == 0.7
        with pytest.raises(websockets.InvalidStatus) as refused:
            asyncio.run(go(f"ws://x:wrong@{address}/openenv/ws"))
    assert refused.value.response.status_code == 401


def test_a_disconnected_session_ends_its_evaluation(tmp_path: Path, command_server: CommandServer) -> None:
    async def go(service: Service) -> None:
        async with session(service) as one:
            await one.observe("reset")
            await one.socket.send(json.dumps({"type": "step", "data": {"reply": RIGHT}}))
            await asyncio.to_thread(wait_until, lambda: service.metric("kernelrl_running") == 1, what="its start")
        await asyncio.to_thread(wait_until, lambda: service.metric("kernelrl_running") == 0, what="its end")

    with recipe_server(command_server, tmp_path, "evaluator.delay_s=600") as service:
        asyncio.run(go(service))
