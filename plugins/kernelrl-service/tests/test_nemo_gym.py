"""NeMo Gym's resources server: the requests that its agents send, in the published format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from facade_servers import RIGHT, WRONG, recipe_server
from kernelrl_command_server import CommandServer

ROW = {
    "task": "fake/train/1",
    "responses_create_params": {"input": [{"role": "user", "content": "Write a kernel."}]},
    "_ng_task_index": 3,
}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    directory = tmp_path_factory.mktemp("service")
    with (
        CommandServer() as commands,
        recipe_server(commands, directory) as service,
        httpx.Client(base_url=service.url) as client,
    ):
        yield client


def response(text: str, **more: Any) -> dict[str, Any]:
    """A response of OpenAI's Responses API, as NeMo Gym's model servers make it."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    fixed = {"id": "resp_1", "object": "response", "created_at": 0.0, "model": "tiny", "tools": []}
    return {**fixed, "parallel_tool_calls": True, "tool_choice": "auto", "output": [message], **more}


def verified(http: httpx.Client, answer: dict[str, Any]) -> dict[str, Any]:
    found = http.post("/verify", json={**ROW, "response": answer})
    assert found.status_code == 200, found.text
    row: dict[str, Any] = found.json()
    return row


def test_a_session_begins_with_a_task_that_is_served(http: httpx.Client) -> None:
    assert http.post("/seed_session", json=ROW).json() == {}
    refused = http.post("/seed_session", json={**ROW, "task": "fake/trian/1"})
    assert refused.status_code == 404
    assert "fake/train/1" in refused.json()["detail"] + refused.json()["fix"]


def test_an_environment_server_opens_and_closes_a_session(http: httpx.Client) -> None:
    """As nemo-gym 0.7.0 does it: the row is in `task_data`, and a session without a cookie is refused."""
    named = {"episode_id": "episode", "resources_session_id": "resources-session-1"}
    seeded = http.post("/seed_session", json={**named, "task_id": "0", "task_data": {"task": "fake/train/1"}})
    assert seeded.json() == {"resources_session_id": "resources-session-1"}
    assert seeded.cookies
    assert http.post("/close_session", json=named).json() == {"resources_session_id": "resources-session-1"}
    refused = http.post("/seed_session", json={**named, "task_id": "0", "task_data": {"task": "fake/trian/1"}})
    assert refused.status_code == 404
    assert http.post("/seed_session", json=named).status_code == 422


def test_a_response_is_scored_and_the_row_is_returned(http: httpx.Client) -> None:
    right, wrong = verified(http, response(RIGHT)), verified(http, response(WRONG))
    assert right.items() >= {**ROW, "response": response(RIGHT)}.items()
    assert (right["reward"], right["reward_components"], right["correct"]) == (0.7, {"correct": 0.7}, 1.0)
    assert right["speedup"] == 1.5
    assert (wrong["reward"], wrong["outcome"]) == (0.0, "incorrect")
    assert "speedup" not in wrong


def test_reasoning_and_the_token_limit_are_those_of_the_response(http: httpx.Client) -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": WRONG}]}
    message = response(RIGHT)["output"][0]
    assert verified(http, response("", output=[thought, message]))["outcome"] == "correct"
    cut = response(RIGHT[:-3], incomplete_details={"reason": "max_output_tokens"})
    assert verified(http, cut)["outcome"] == "format_error"
    assert verified(http, response("", output=[]))["outcome"] == "format_error"


def test_a_row_without_a_task_or_a_response_is_refused(http: httpx.Client) -> None:
    lacking = http.post("/verify", json={"response": response(RIGHT)})
    assert (lacking.status_code, lacking.json()["fix"]) == (422, "add the key 'task' to the row")
    assert "response.output" in http.post("/verify", json=ROW).json()["detail"]


def test_metrics_are_the_means_of_numbers(http: httpx.Client) -> None:
    rows = [{"reward": 0.7, "correct": 1.0, "_ng_task_index": 0}, {"reward": 0.0, "correct": 0.0, "outcome": "timeout"}]
    found = http.post("/aggregate_metrics", json={"verify_responses": rows}).json()
    assert found["agent_metrics"] == {"mean/reward": 0.35, "mean/correct": 0.5}
    assert found["key_metrics"] == found["agent_metrics"]
    assert http.get("/reverify_mode").json() == "stateless"
