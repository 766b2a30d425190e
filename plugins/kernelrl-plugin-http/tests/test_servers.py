"""Evaluations by real servers with the evaluator of the fakes: load, lost servers, broken connections, tokens."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kernelrl_faulty_proxy import faulty_proxy
from kernelrl_service_process import Service, Services

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Outcome
from kernelrl_plugin_http.config import HttpConfig
from kernelrl_plugin_http.evaluator import HttpEvaluator
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import DEADLINE_S, takes_async

pytestmark = pytest.mark.usefixtures("fake_plugin")

TASK = "class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n# train 0"
KERNEL = "class ModelNew:  # {}\n    def forward(self, x):\n        return {!r}\n"


def request(number: int = 0, answer: str = "right", *, task: str = TASK) -> EvaluationRequest:
    return make_request(KERNEL.format(number, answer), task, "fake")


@asynccontextmanager
async def evaluator(*urls: str, **options: Any) -> AsyncIterator[HttpEvaluator]:
    made = HttpEvaluator(HttpConfig(urls=urls, **options))
    try:
        await made.start()
        yield made
    finally:
        await made.aclose()


async def evaluated(urls: Sequence[str], requests: Sequence[EvaluationRequest], **options: Any) -> list[Evaluation]:
    async with evaluator(*urls, **options) as made:
        return await asyncio.gather(*map(made.evaluate, requests))


async def until(condition: Callable[[], Awaitable[bool]], patience_s: float = DEADLINE_S) -> None:
    async with asyncio.timeout(patience_s):
        while not await condition():  # it is a condition of another process
            await takes_async(0.02)


async def running(service: Service) -> float:
    return await asyncio.to_thread(service.metric, "kernelrl_running")


def servers_of(found: Sequence[Evaluation]) -> set[str]:
    return {str(one.provenance["server"]) for one in found}


def test_requests_are_evaluated_by_all_servers_up_to_their_capacity(services: Services) -> None:
    options = ("evaluator.capacity=4", "evaluator.delay_s=0.1")
    urls = [services.start(*options).url for _ in range(2)]
    requests = [request(number, "right" if number % 2 else "wrong") for number in range(24)]

    async def go() -> tuple[int, list[Evaluation]]:
        async with evaluator(*urls) as made:
            return made.capacity, await asyncio.gather(*map(made.evaluate, requests))

    capacity, found = asyncio.run(go())
    assert capacity == 8
    assert [one.outcome for one in found] == [Outcome.INCORRECT, Outcome.CORRECT] * 12
    assert servers_of(found) == set(urls)


def test_a_stopped_server_is_replaced_within_one_time_out(services: Services) -> None:
    options = ("evaluator.capacity=4", "evaluator.delay_s=0.2")
    first, second = services.start(*options), services.start(*options)
    timeout_s = 3.0

    async def go() -> tuple[float, list[Evaluation]]:
        async with evaluator(first.url, second.url, timeout_s=timeout_s) as made:
            requests = [asyncio.create_task(made.evaluate(request(number))) for number in range(8)]
            await until(lambda: _both_run(first, second))
            first.pause()
            began = time.monotonic()
            found = await asyncio.gather(*requests)
            return time.monotonic() - began, found

    async def _both_run(*both: Service) -> bool:
        return all([await running(one) for one in both])

    took_s, found = asyncio.run(go())
    assert {one.outcome for one in found} == {Outcome.CORRECT}
    assert second.url in servers_of(found)
    # One time-out, and the evaluation of the four requests of the other server; a busy machine adds to both.
    assert took_s < 2 * timeout_s


def test_a_killed_and_restarted_server_continues(services: Services, tmp_path: Path) -> None:
    options = ("evaluator.capacity=4", "evaluator.delay_s=0.5", "--state", str(tmp_path / "state"))
    first = services.start(*options)

    async def go() -> list[Evaluation]:
        async with evaluator(first.url) as made:
            requests = [asyncio.create_task(made.evaluate(request(number))) for number in range(12)]
            await until(lambda: _runs(first))
            await asyncio.to_thread(first.kill)
            port = first.url.rpartition(":")[2]
            await asyncio.to_thread(services.start, *options, listen=f"127.0.0.1:{port}")
            return await asyncio.gather(*requests)

    async def _runs(service: Service) -> bool:
        return bool(await running(service))

    assert {one.outcome for one in asyncio.run(go())} == {Outcome.CORRECT}


def test_broken_connections_lose_and_double_nothing(services: Services, tmp_path: Path) -> None:
    log = tmp_path / "evaluated.txt"
    service = services.start("evaluator.capacity=8", "evaluator.delay_s=0.05", f"evaluator.log={log}")
    requests = [request(number, "right" if number % 2 else "wrong") for number in range(60)]

    async def go() -> list[Evaluation]:
        # Each third connection, when the server starts to respond.
        cuts = itertools.cycle([None, None, ("response", 1)])
        async with faulty_proxy(service.url, lambda: next(cuts)) as proxy:
            return await evaluated([proxy.url], requests)

    found = asyncio.run(go())
    assert [one.outcome for one in found] == [Outcome.INCORRECT, Outcome.CORRECT] * 30
    hashes = log.read_text().split()
    assert sorted(hashes) == sorted(one.source_sha256 for one in requests)


def test_a_cancelled_evaluation_ends_on_the_server(services: Services) -> None:
    service = services.start("evaluator.delay_s=600")

    async def go() -> None:
        async with evaluator(service.url) as made:
            task = asyncio.create_task(made.evaluate(request()))

            async def runs() -> bool:
                return bool(await running(service))

            async def runs_not() -> bool:
                return not await running(service)

            await until(runs)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(runs_not)

    asyncio.run(go())


def test_an_evaluation_may_take_longer_than_the_time_out(services: Services) -> None:
    service = services.start("evaluator.delay_s=3")
    (found,) = asyncio.run(evaluated([service.url], [request()], timeout_s=1.5))
    assert found.outcome is Outcome.CORRECT


def test_a_full_queue_is_waited_for(services: Services) -> None:
    service = services.start("evaluator.capacity=8", "evaluator.delay_s=0.2", "--queue-per-client", "2")
    found = asyncio.run(evaluated([service.url], [request(number) for number in range(8)]))
    assert {one.outcome for one in found} == {Outcome.CORRECT}


def test_a_server_that_does_not_respond_at_the_start_is_replaced(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    service = services.start()
    (found,) = asyncio.run(evaluated(["http://127.0.0.1:1", service.url], [request()]))
    assert servers_of([found]) == {service.url}
    assert "server http://127.0.0.1:1: no connection" in caplog.text


def test_without_any_server_the_start_fails_with_all_addresses() -> None:
    with pytest.raises(MissingPrerequisite, match=r"http://127\.0\.0\.1:1: no connection .*unix:/nowhere: no con"):
        asyncio.run(evaluated(["http://127.0.0.1:1", "unix:/nowhere"], []))


def test_servers_that_stay_away_end_the_run_with_the_fix(services: Services) -> None:
    service = services.start("evaluator.delay_s=600")

    async def go() -> None:
        async with evaluator(service.url, patience_s=1.0) as made:
            task = asyncio.create_task(made.evaluate(request()))
            await asyncio.to_thread(service.kill)
            await task

    with pytest.raises(MissingPrerequisite, match="has responded for 1 s") as raised:
        asyncio.run(go())
    assert "kernelrl resume" in raised.value.fix


def test_an_address_of_something_else_is_named(services: Services) -> None:
    service = services.start()
    with pytest.raises(UsageError, match="there is no such path"):
        asyncio.run(evaluated([f"{service.url}/elsewhere"], []))


@contextmanager
def imitation(service: Service, **changes: Any) -> Iterator[str]:
    """Address of a server with the state of a real one, except for some fields."""
    with urllib.request.urlopen(f"{service.url}/v1/capacity") as response:
        facts = {**json.load(response), **changes}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(facts).encode())

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu_model": "NVIDIA H100"}, "has GPU 'NVIDIA H100', another server has 'none'"),
        ({"identity": "other"}, "has evaluator 'other', another server has 'none'"),
        ({"versions": {"python": "3.11", "kernelrl": "9.9"}}, "has other versions: kernelrl 9.9, here"),
    ],
)
def test_servers_that_could_have_other_results_are_refused(
    services: Services, changes: dict[str, Any], message: str
) -> None:
    service = services.start()
    with imitation(service, **changes) as other, pytest.raises(MissingPrerequisite, match=message):
        asyncio.run(evaluated([service.url, other], []))


def test_a_task_that_the_server_does_not_serve_is_an_error_of_the_request(services: Services) -> None:
    service = services.start()
    with pytest.raises(UsageError, match="serves no task"):
        asyncio.run(evaluated([service.url], [request(task="class Model: 'mine'")]))


def test_a_failure_of_the_server_s_evaluator_is_an_infrastructure_error(services: Services) -> None:
    service = services.start("evaluator.log=/nowhere/log")
    with pytest.raises(InfrastructureError):
        asyncio.run(evaluated([service.url], [request()]))


def test_the_token_is_read_from_the_environment_and_never_shown(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelrl_service.tokens import add_token

    token = add_token(tmp_path / "tokens.yaml", "alice", inline_tasks=False)
    service = services.start("--tokens", str(tmp_path / "tokens.yaml"))
    monkeypatch.setenv("KERNELRL_SERVICE_TOKEN", token)
    (found,) = asyncio.run(evaluated([service.url], [request()]))
    assert found.outcome is Outcome.CORRECT
    monkeypatch.setenv("KERNELRL_SERVICE_TOKEN", "krl_wrong")
    with pytest.raises(MissingPrerequisite, match="no valid token") as raised:
        asyncio.run(evaluated([service.url], []))
    assert "krl_wrong" not in str(raised.value)


def test_a_backend_that_the_server_lacks_is_named(services: Services) -> None:
    service = services.start()

    async def go() -> None:
        with imitation(service, backends={}) as url:
            async with evaluator(url) as made:
                await made.expect("fake")

    with pytest.raises(MissingPrerequisite, match="lacks backend fake"):
        asyncio.run(go())
