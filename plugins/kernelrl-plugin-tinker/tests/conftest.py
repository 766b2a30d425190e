from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kernelrl_core.api.policies import (
    Loss,
    Message,
    OptimizerSettings,
    PolicyContext,
    SamplingSettings,
    TrainingSample,
    Update,
    WarmStartExample,
)
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_tinker.config import TinkerConfig
from kernelrl_plugin_tinker.policy import TinkerPolicy
from kernelrl_testing.core import shape_samples, split_evenly
from kernelrl_testing.waiting import DEADLINE_S, takes_async
from kernelrl_tinker_server.local import LocalServer

os.environ["TINKER_TELEMETRY"] = "0"

STATUS = {"refused": 401, "missing": 404, "conflict": 409, "storm": 429, "broken": 500}
PAGE = "<!DOCTYPE html>\n<html>\n<head><title>Sign in</title></head>\n<body>Welcome</body>\n</html>\n"
MESSAGES = (Message("user", "Write relu.\n"),)
OPERATIONS = ("relu", "exp", "abs", "sin", "cos", "neg")


def examples() -> list[WarmStartExample]:
    """Short demonstrations for short prompts, correct and incorrect."""
    made = []
    for name in OPERATIONS:
        messages = (Message("user", f"Write a kernel for {name}.\nAnswer with one line.\n"),)
        for weight, answer in ((0.5, f"y = tl.{name}(x)"), (0.3, f"y = torch.{name}(x)"), (0.2, "y = x")):
            outcome = Outcome.CORRECT if weight == 0.5 else Outcome.INCORRECT
            made.append(WarmStartExample(messages, answer, weight, name, outcome))
    return made


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """Shared by the session, so that the local server's model is created once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def make_context(cache: Path, tmp_path: Path):
    """Makes a policy's context; the lines that the policy shows are in `make_context.said`."""

    def make(*, loss: str = "ppo", reference: bool = False, run: str = "run") -> PolicyContext:
        async def demonstrations() -> list[WarmStartExample]:
            return examples()

        directory = tmp_path / run
        directory.mkdir(exist_ok=True)
        return PolicyContext(7, cache, directory, demonstrations, "short", make.said.append, loss, reference)

    make.said = []
    return make


@pytest.fixture
def sampling():
    def make(seed: int = 0, **changes: Any) -> SamplingSettings:
        values: dict[str, Any] = {
            "max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop": (), "seed": seed,
        }  # fmt: skip
        return SamplingSettings(**(values | changes))

    return make


@pytest.fixture
def loss():
    def make(name: str = "ppo", **more: Any) -> Loss:
        return Loss(name, 0.2, 0.28, **more)

    return make


@pytest.fixture
def optimizer():
    def make(learning_rate: float = 3e-3, max_grad_norm: float | None = 0.5) -> OptimizerSettings:
        return OptimizerSettings(learning_rate, 0.9, 0.95, 1e-8, 0.01, max_grad_norm)

    return make


@pytest.fixture
def make_update(loss, optimizer):
    """Makes an update from training samples, shaped and split as in the core."""

    def make(
        samples: Sequence[TrainingSample],
        step: int = 0,
        *,
        substeps: int = 1,
        accumulated: Sequence[int] = (),
        **settings: Any,
    ) -> Update:
        shaped = shape_samples(samples, 50.0).samples
        parts = tuple(map(tuple, split_evenly(shaped, substeps)))
        return Update(step, parts, tuple(accumulated), **({"loss": loss(), "optimizer": optimizer()} | settings))

    return make


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with LocalServer(state=tmp_path_factory.mktemp("state")) as started:
        yield started


@pytest.fixture
def proxy(server, make_proxy):
    return make_proxy(server.base_url)


@pytest.fixture
def policy(server, proxy):
    """Makes a policy that connects through the proxy, with short time limits."""

    def make(**options: Any) -> TinkerPolicy:
        given = {"model": server.models[0], "renderer": "chat_template", "base_url": proxy.base_url, "retries": 2}
        return TinkerPolicy(TinkerConfig(**(given | {"give_up_after_s": 20.0} | options)))

    return make


@pytest.fixture
def context(tmp_path: Path):
    async def none() -> tuple[()]:
        return ()

    return PolicyContext(3, tmp_path, tmp_path, none, "none", lambda line: None, "importance_sampling")


@pytest.fixture
def run(context: PolicyContext):
    """Runs a coroutine with a started policy and returns its result."""

    def made(policy: TinkerPolicy, work, context: PolicyContext = context) -> Any:
        async def whole() -> Any:
            try:
                await policy.start(context)
                return await work(policy)
            finally:
                await policy.aclose()

        return asyncio.run(asyncio.wait_for(whole(), DEADLINE_S))

    return made


@pytest.fixture
def one_reply(sampling):
    async def work(policy: TinkerPolicy):
        return await policy.sample(policy.render(MESSAGES), sampling(3))

    return work


@pytest.fixture
def learn(make_update, loss):
    """Makes a coroutine that runs equal steps, calls `then` before each, and returns the metrics of the last one."""

    def made(steps: int = 1, then=None):
        async def work(policy: TinkerPolicy):
            prompt = policy.render(MESSAGES).tokens
            samples = tuple(TrainingSample(str(a), prompt, (65 + a, 66), (-5.0, -5.0), 1.0 - a) for a in range(3))
            for number in range(steps):
                if then is not None:
                    await then(policy, number)
                step = make_update(samples, number, substeps=2, loss=loss("importance_sampling"))
                metrics = await policy.update(step)
            return metrics

        return work

    return made


@pytest.fixture
def make_proxy():
    """Makes proxies between client and server that inject faults."""
    made: list[FaultyProxy] = []

    def make(target: str) -> FaultyProxy:
        made.append(FaultyProxy(target))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


class FaultyProxy:
    """Forwards requests, except those with a fault.

    A fault is one of `refused` (401), `missing` (404), `conflict` (409), `storm` (429), `broken` (500), `page` (a page
    of HTML), `gateway` (the same with status 502), `half` (the connection closes in the middle of the response), `hang`
    (no response), `failed` (the response reports that the request failed at the server), `no ids` (the response lacks
    the ids of samples, as of servers for SDK 0.25), `no model` (422 for weights that are loaded into no model).
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._faults: list[tuple[str, str, int]] = []
        self.seen: list[str] = []
        """Paths of all requests."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(DEADLINE_S)

    def fault(self, what: str, path: str, times: int = 1, *, after: int = 0) -> None:
        """Let the next `times` requests to a path fail, after `after` successful ones."""
        if after:
            self._faults.append(("", path, after))
        self._faults.append((what, path, times))

    def leave(self) -> None:
        """Stop serving, like a server that has ended."""
        self._call(self._runner.cleanup)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    def _call(self, work: Callable[[], Any]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(10)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as self._session:
            self._ready.set()
            await self._ended.wait()
            await self._runner.cleanup()

    def _due(self, path: str) -> str:
        for index, (what, wanted, times) in enumerate(self._faults):
            if path.endswith(wanted):
                self._faults[index : index + 1] = [(what, wanted, times - 1)] if times > 1 else []
                return what
        return ""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(request.path)
        what = self._due(request.path)
        if what in STATUS:
            return web.json_response({"detail": what}, status=STATUS[what])
        if what in ("page", "gateway"):
            return web.Response(text=PAGE, content_type="text/html", status=200 if what == "page" else 502)
        if what == "no model" and b'"model_id"' not in body:
            detail = [{"type": "missing", "loc": ["body", "model_id"], "msg": "Field required"}]
            return web.json_response({"detail": detail}, status=422)
        if what == "failed":
            return web.json_response({"error": "a worker died", "category": "server"})
        if what == "hang":
            await takes_async(3600)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
        async with self._session.request(
            request.method, self._target + request.path_qs, data=body, headers=headers
        ) as forwarded:
            content = await forwarded.read()
            response = web.StreamResponse(status=forwarded.status, headers={"Content-Type": forwarded.content_type})
        if what == "no ids":
            fields = json.loads(content)
            del fields["sample_sequence_ids"]
            return web.json_response(fields)
        if what != "half":
            return web.Response(body=content, status=response.status, headers=response.headers)
        response.content_length = len(content) + 100
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        assert request.transport is not None
        request.transport.close()
        return response
