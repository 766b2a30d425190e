"""The OpenAPI document describes the responses; metrics, capacity and tasks."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
from service_servers import RIGHT, TASK

from kernelrl_core.api import API_VERSION
from kernelrl_service.problems import PROBLEMS
from kernelrl_service.redaction import Redaction

PAGE = Path(__file__).parents[3] / "docs/service.md"


def test_responses_fit_the_schemas_of_the_document(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            document = (await server.http.get("/openapi.json")).json()
            calls = [
                ("get", "/healthz", {}), ("get", "/v1/capacity", {}), ("get", "/v1/tasks", {}),
                ("get", f"/v1/tasks/{TASK}", {}),
                ("post", "/v1/evaluations", {"source": RIGHT, "backend": "triton", "task_id": TASK}),
                ("post", "/v1/evaluations/batch", {"requests": []}),
                ("post", "/v1/check", {"task": TASK, "kernel": RIGHT}),
                ("post", "/v1/evaluations", {}), ("get", "/v1/tasks/none", {}),
            ]  # fmt: skip
            for method, path, body in calls:
                more = {"json": body, "params": {"wait": 30}} if method == "post" else {}
                answer = await server.http.request(method, path, **more)
                described = document["paths"][re.sub(r"/tasks/.*", "/tasks/{id}", path)][method]
                content = described["responses"][str(answer.status_code)]["content"]
                (media_type,) = content
                assert answer.headers["content-type"] == media_type
                schema = {**content[media_type]["schema"], "components": document["components"]}
                jsonschema_rs.validate(schema, answer.json())

    asyncio.run(test())


def test_every_response_has_the_version(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            for path in ("/healthz", "/none", "/v1/tasks"):
                assert (await server.http.get(path)).headers["kernelrl-api-version"] == API_VERSION

    asyncio.run(test())


def test_metrics_count_evaluations_by_outcome(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            for source in (RIGHT, "wrong", RIGHT):
                await server.evaluate(source)
            text = (await server.http.get("/metrics")).text
            for line in (
                'kernelrl_evaluations_total{outcome="correct"} 1.0',
                'kernelrl_evaluations_total{outcome="incorrect"} 1.0',
                'kernelrl_requests_total{path="/v1/evaluations",status="200"} 3.0',
                "kernelrl_running 0.0",
                "kernelrl_capacity 64.0",
            ):
                assert line in text

    asyncio.run(test())


def test_every_status_of_a_problem_is_an_error_and_has_a_title() -> None:
    assert all(400 <= status < 600 and title for status, title in PROBLEMS.values())
    assert {name for name, (status, _) in PROBLEMS.items() if status >= 500} == {
        "internal", "closing", "infrastructure", "disk",
    }  # fmt: skip


def test_directories_of_this_machine_are_removed_from_texts(tmp_path: Path) -> None:
    redact = Redaction([tmp_path])
    inside = f"{sys.prefix}/lib/x.py"
    found = redact({"log": [f'File "{inside}", line 1', f"{tmp_path}/journal.sqlite3: gone"], "n": 1, "a/b": "1 / 2"})
    assert found["log"][1] == "journal.sqlite3: gone"
    assert sys.prefix not in found["log"][0]
    assert "line 1" in found["log"][0]
    assert (found["n"], found["a/b"]) == (1, "1 / 2")
