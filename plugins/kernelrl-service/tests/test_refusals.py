"""Requests that are refused: one documented status with a problem document, and never a 5xx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_servers import RIGHT, TASK, Running

from kernelrl_core.api.errors import StorageError
from kernelrl_service.options import Limits
from kernelrl_service.tokens import Client, Tokens
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.waiting import takes_async

BODY = {"source": RIGHT, "backend": "triton", "task_id": TASK}
JSON = {"Content-Type": "application/json"}
LIMITS = Limits(body_bytes=100_000, source_bytes=20_000, body_s=0.2, batch=3)
DEEP = "[" * 50_000
HUGE = "9" * 5_000


def nested(depth: int) -> dict[str, Any]:
    """Objects in objects."""
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in {**BODY, **more}.items() if key not in names}


BODIES: dict[str, tuple[bytes | str | dict[str, Any] | list[Any], int]] = {
    "empty": (b"", 400),
    "not JSON": (b"{", 400),
    "deep": (DEEP, 400),
    "deep object": ('{"a":' * 15_000, 400),
    "UTF-16": (json.dumps(BODY).encode("utf-16"), 400),
    "Latin-1": ('{"source": "é"}'.encode("latin-1"), 400),
    "lone surrogate": (b'{"source": "\\ud800", "backend": "triton", "task_id": "relu"}', 400),
    "NaN": (b'{"source": NaN}', 400),
    "byte order mark": (b"\xef\xbb\xbf{}", 400),
    "null": (b"null", 422),
    "number": (b"1", 422),
    "list": ([BODY], 422),
    "text": (b'"source"', 422),
    "large number": ('{"source": ' + HUGE + "}", 400),
    "no source": (without("source"), 422),
    "no backend": (without("backend"), 422),
    "no task": (without("task_id"), 422),
    "source is a list": (without(source=[RIGHT]), 422),
    "source is null": (without(source=None), 422),
    "package outside of its directory": (without(package={"../own.py": ""}), 422),
    "package is a list": (without(package=["own.py"]), 422),
    "package of numbers": (without(package={"own.py": 1}), 422),
    "large source": (without(source="#" * 20_001), 413),
    "large source of two bytes": (without(source="é" * 10_001), 413),
    "large body": (without(source="#" * 200_000), 413),
    "long task id": (without(task_id="a" * 10_000), 422),
    "unknown key": (without(file="/etc/passwd"), 422),
    "path as task": (without(task_id="../../etc/passwd"), 404),
    "file as task": (without(task_id="/etc/passwd"), 404),
    "unknown task": (without(task_id="rely"), 404),
    "foreign task": (without("task_id", task_source="import os"), 403),
    "hash of a foreign task": (without("task_id", task_sha256="0" * 64), 403),
    "hash that does not fit the task": (without(task_source="import os", task_sha256="0" * 64), 422),
    "hash that does not fit the source": (without(source_sha256="0" * 64), 422),
    "another version": (without(api_version="9.9"), 400),
    "unknown backend": (without(backend="rust"), 422),
    "module as backend": (without(backend="os:system"), 422),
    "path as backend": (without(backend="../triton"), 422),
    "options of a backend": (without(backend_options={"mode": "gpu"}), 422),
    "flags of a compiler": (without(backend="cpp", backend_options={"flags": ["-include", "/etc/passwd"]}), 422),
    "options that are no object": (without(backend_options="x"), 422),
    "seed": (without(seed="0x1"), 422),
    "capital seed": (without(seed="A" * 32), 422),
    "unknown setting": (without(settings={"evaluator": "local"}), 422),
    "setting of a wrong type": (without(settings={"trials": "5"}), 422),
    "boolean as number": (without(settings={"timeout_s": True}), 422),
    "trials": (without(settings={"trials": 0}), 422),
    "too many trials": (without(settings={"trials": 10**6}), 422),
    "long timeout": (without(settings={"timeout_s": 1e9}), 422),
    "negative timeout": (without(settings={"timeout_s": -1}), 422),
    "much memory": (without(settings={"memory_mib": 10**9}), 422),
    "unknown probe": (without(settings={"probes": ["none"]}), 422),
    "unknown profile": (without(settings={"profile": "lenient"}), 422),
    "kernels are numbers": (without(kernels=[1]), 422),
    "deep options": (without(backend_options=nested(500)), 422),
    "deep settings": (without(settings=nested(500)), 422),
    "deep list as source": ('{"source": ' + "[" * 900 + "]" * 900 + "}", 422),
    "deeper than the parser": (
        json.dumps(BODY)[:-1] + ', "backend_options": ' + '{"a":' * 2000 + "1" + "}" * 2001,
        400,
    ),
    "repeated key": ('{"source": "right", "backend": "triton", "task_id": "relu", "task_id": "other"}', 404),
    "two documents": (json.dumps(BODY) * 2, 400),
    "text behind the document": (json.dumps(BODY) + "x", 400),
    "comment": ("{} // right", 400),
    "single quotes": ("{'source': 'right'}", 400),
    "line break in a text": (b'{"source": "a\nb"}', 400),
    "unknown escape": (b'{"source": "\\x41"}', 400),
    "overlong UTF-8": (b'{"source": "\xc0\xaf"}', 400),
    "surrogate in UTF-8": (b'{"source": "\xed\xa0\x80"}', 400),
    "UTF-7": ("+AHs-".encode("ascii"), 400),
    "UTF-32": (json.dumps(BODY).encode("utf-32"), 400),
    "Infinity": (b'{"settings": {"timeout_s": Infinity}}', 400),
    "null in a task id": (without(task_id="relu\0"), 404),
    "override of direction in a task id": (without(task_id="relu\u202e"), 404),
    "fractional trials": (without(settings={"trials": 5.5}), 422),
    "many timed trials": (without(settings={"timing_trials": 10**9}), 422),
    "much memory for builds": (without(settings={"build_memory_mib": 10**9}), 422),
    "long build": (without(settings={"build_timeout_s": 1e9}), 422),
    "version that is a number": (without(api_version=0.1), 422),
    "rules that are a text": (without(suspect_rules="no_kernel"), 422),
    "long backend": (without(backend="a" * 10_000), 422),
    "long domain": (without(domain="a" * 10_000), 422),
    "domain that is a list": (without(domain=["a"]), 422),
    "key of a prototype": (without(__proto__={"a": 1}), 422),
}

OTHER_BODIES: list[tuple[str, dict[str, Any], int]] = [
    ("/v1/evaluations/batch", {"requests": {}}, 422),
    ("/v1/evaluations/batch", {"requests": [{}]}, 422),
    ("/v1/evaluations/batch", {"requests": [[BODY]]}, 422),
    ("/v1/evaluations/batch", {"requests": [BODY, without(task_id="rely")]}, 404),
    ("/v1/check", {"task": "relu", "kernel": ["right"]}, 422),
    ("/v1/check", {"task": "relu", "kernel": "right", "seed": 1.5}, 422),
    ("/v1/check", {"task": "relu", "kernel": "right", "seed": "1"}, 422),
    ("/v1/check", {"task": "mine", "kernel": "right", "task_source": "import os"}, 403),
    ("/v1/check", {"task": "relu", "kernel": "right", "as_command": "yes"}, 422),
    ("/v1/check", {"task": "../relu", "kernel": "right"}, 404),
    ("/v1/score", {"task": "relu", "recipe": "/etc/passwd", "reply": "right"}, 404),
    ("/v1/score", {"task": "relu", "recipe": ["a"], "reply": "right"}, 422),
    ("/v1/score", {"task": "relu", "recipe": "a", "reply": "right", "stop_reason": "eos"}, 422),
    ("/v1/episodes", {"task": "relu", "recipe": "../quickstart"}, 404),
    ("/v1/episodes", {"task": "relu", "recipe": "a", "purpose": "test"}, 422),
    ("/v1/episodes", {"task": "relu", "recipe": "a", "context_tokens": -1}, 422),
    ("/openenv/reset", {"recipe": "a", "seed": "x"}, 422),
    ("/openenv/step", {"action": {"reply": "right", "episode_id": "../x"}}, 404),
    ("/openenv/step", {"action": {"reply": "right"}}, 422),
    ("/verify", {"task": "relu", "recipe": "a", "response": "text"}, 404),
    ("/verify", nested(300), 422),
    ("/openenv/mcp", {"id": nested(300)}, 422),
]


class Refusing:
    """A started server for all tests of this file."""

    def __init__(self, runner: asyncio.Runner, server: Running) -> None:
        self._runner, self._server = runner, server

    def __call__(self, method: str, path: str, content: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        """The response to a request that must not reach the evaluator."""
        http = self._server.http
        data = json.dumps(content) if isinstance(content, dict | list) else content
        request = http.build_request(method, path, content=data, headers=JSON if headers is None else headers)
        answer = self._runner.run(http.send(request))
        assert not self._server.evaluator.requests
        return answer


@pytest.fixture(scope="module")
def refused(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    """A server without tokens."""
    yield from refusing(start_server(tmp_path_factory.mktemp("open"), FakeEvaluator(), limits=LIMITS))


@pytest.fixture(scope="module")
def guarded(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    """A server with the token `right`."""
    tokens = Tokens.of({"right": Client("a")})
    yield from refusing(start_server(tmp_path_factory.mktemp("guarded"), FakeEvaluator(), tokens=tokens))


def refusing(starting: AbstractAsyncContextManager[Running]) -> Iterator[Refusing]:
    with asyncio.Runner() as runner:
        server = runner.run(starting.__aenter__())
        yield Refusing(runner, server)
        runner.run(starting.__aexit__(None, None, None))


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_evaluation_request_is_refused(refused: Refusing, name: str) -> None:
    content, status = BODIES[name]
    answer = refused("POST", "/v1/evaluations", content)
    require_problem(answer, status)


@pytest.mark.parametrize("path", ["/v1/evaluations", "/v1/evaluations/batch", "/v1/check", "/v1/score", "/v1/episodes"])
@pytest.mark.parametrize("content", [b"", b"{", DEEP, b"null", b"[]", b'{"a": 1}', b"\xff\xfe"])
def test_every_endpoint_refuses_a_body_that_is_no_request(refused: Refusing, path: str, content: bytes | str) -> None:
    answer = refused("POST", path, content)
    assert answer.status_code in (400, 422)
    require_problem(answer, answer.status_code)


@pytest.mark.parametrize(("path", "body", "status"), OTHER_BODIES)
def test_a_bad_request_of_another_kind_is_refused(
    refused: Refusing, path: str, body: dict[str, Any], status: int
) -> None:
    require_problem(refused("POST", path, body), status)


@pytest.mark.parametrize("headers", [
    {}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json-seq"}, {"Content-Type": "*/*"},
    {**JSON, "Content-Encoding": "br"}, {**JSON, "Content-Encoding": "deflate, gzip"},
    {"Content-Type": "multipart/form-data; boundary=x"},
    {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "application/jsonp"},
    {**JSON, "Content-Encoding": "gzip"},
])  # fmt: skip
def test_a_body_of_another_type_is_refused(refused: Refusing, headers: dict[str, str]) -> None:
    require_problem(refused("POST", "/v1/evaluations", BODY, headers), 415)


@pytest.mark.parametrize("path", [
    "/", "/v1", "/v1/", "/v2/evaluations", "/v1/evaluations/", "/v1/evaluations/x", "/v1/evaluations/../../etc/passwd",
    "/v1/evaluations/%2e%2e%2fjournal.sqlite3", "/v1/evaluations/%00", "/v1/evaluations/' OR 1=1 --",
    "/v1/tasks//etc/passwd", "/v1/tasks/..%2f..%2fetc%2fpasswd", "/v1/tasks/nothing", "/v1/episodes/x",
    "/v1/episodes/..", "/journal.sqlite3", "/static/secret.key", "/docs",
    "/v1/tasks/%252e%252e%252fetc%252fpasswd", "/v1/tasks/relu%00", "/v1/tasks/..;/relu", "/v1/tasks/RELU",
    "/v1/tasks/%ff%fe", "/v1/tasks/%c0%ae%c0%ae/", "/v1/tasks/%5c%5chost%5cshare", "/v1/tasks/" + "a" * 5_000,
    "/v1/evaluations/" + "0" * 64, "//v1/tasks", "/v1//tasks", "/V1/tasks", "/v1/tasks%2f", "/.env",
    "/proc/self/environ",
])  # fmt: skip
def test_a_path_that_names_nothing_is_not_found(refused: Refusing, path: str) -> None:
    require_problem(refused("GET", path, None, {}), 404)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/v1/evaluations", "/v1/check", "/healthz", "/v1/tasks"])
def test_another_method_is_refused(refused: Refusing, method: str, path: str) -> None:
    answer = refused(method, path, None, {})
    require_problem(answer, 405)
    assert answer.headers["allow"]


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "1e9", "x", "1,5", "0x1"])
def test_a_wait_that_is_no_time_is_refused(refused: Refusing, wait: str) -> None:
    require_problem(refused("POST", f"/v1/evaluations?wait={wait}", BODY), 422)


@pytest.mark.parametrize("header", [
    "", "Bearer", "Bearer ", "Bearer wrong", "Basic cmlnaHQ=", "right", "Bearer right right", "Token right",
    "Bearer " + "a" * 5_000,
])  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/evaluations", "/v1/check", "/v1/episodes"])
def test_a_wrong_token_is_guarded(guarded: Refusing, header: str, path: str) -> None:
    headers = {**JSON, **({"Authorization": header} if header else {})}
    answer = guarded("POST", path, BODY, headers)
    require_problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1/capacity", "/v1/tasks", "/metrics", "/v1/evaluations/x", "/v1/episodes/x"])
def test_reading_needs_a_token_too(guarded: Refusing, path: str) -> None:
    require_problem(guarded("GET", path, None, {}), 401)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8790", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_page_elsewhere_cannot_use_a_server_of_this_machine(refused: Refusing, host: str) -> None:
    require_problem(refused("POST", "/v1/evaluations", BODY, {**JSON, "Host": host}), 421)


@pytest.mark.parametrize("version", ["0.0", "9.9", "", "x" * 1000])
def test_a_client_of_another_version_is_refused(refused: Refusing, version: str) -> None:
    headers = {**JSON, "Kernelrl-Api-Version": version}
    require_problem(refused("POST", "/v1/evaluations", BODY, headers), 400)


def test_a_batch_above_the_limit_is_too_large(refused: Refusing) -> None:
    require_problem(refused("POST", "/v1/evaluations/batch", {"requests": [BODY] * 4}), 413)


@pytest.mark.parametrize("first", [b"", b"{", json.dumps(BODY).encode()])
def test_a_slow_body_is_refused(refused: Refusing, first: bytes) -> None:
    async def slow() -> Any:
        yield first
        await takes_async(30)
        yield b" "

    require_problem(refused("POST", "/v1/evaluations", slow()), 408)


def test_a_body_that_arrives_in_drops_has_one_time_limit_as_a_whole(refused: Refusing) -> None:
    async def drops() -> Any:
        yield b"{"
        while True:
            await takes_async(0.01)
            yield b" "

    require_problem(refused("POST", "/v1/evaluations", drops()), 408)


def test_a_journal_that_cannot_be_written_accepts_nothing(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running() as server:

            async def full(*arguments: Any) -> None:
                raise StorageError("database or disk is full")

            monkeypatch.setattr(server.server.queue._journal, "accept", full)
            require_problem(await server.evaluate(), 507)
            assert not server.evaluator.requests

    asyncio.run(test())


def test_a_fault_of_the_server_shows_nothing_of_it(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running() as server:

            async def broken(*arguments: Any) -> None:
                raise RuntimeError("secret of /home/me/secret.key")

            monkeypatch.setattr(server.server.catalogue, "request", broken)
            answer = await server.evaluate()
            require_problem(answer, 500)
            assert "secret" not in answer.text

    asyncio.run(test())


def require_problem(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["type"].startswith("urn:kernelrl:")
    assert document["title"]
    assert 0 < len(document["detail"]) < 1000
    assert str(Path.home()) not in answer.text
