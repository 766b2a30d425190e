"""The policy `openai` from the command line: results, exit codes, and no key in any output or file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "tests/servers"))

from kernelrl_command_server import CommandServer
from kernelrl_openai_server import OpenAIServer

FAKES = Path(__file__).parents[3] / "tests/fakes"
KEY = "sk-very-secret-0123456789"
RECIPE = """
tasks:     {{use: fake}}
backend:   {{use: fake}}
policy:    {{use: openai, model: tiny, base_url: "{url}", patience_s: 0.5}}
evaluator: {{use: fake}}
feedback:  {{use: fake}}
forbid:    []
rewards:   {{correct: {{use: fake}}}}
train:     {{tasks_per_step: 2, group_size: 2, steps: 1}}
eval:      {{samples: 2}}
"""

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def write_kernel(messages: list[dict[str, str]]) -> str:
    right = "held_out 0" in str(messages) or "held_out 1" in str(messages)
    word = "right" if right else "wrong"
    return f"```python\nclass ModelNew:\n    def forward(self, x):\n        return {word!r}\n```"


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(write_kernel, key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def command_server() -> Iterator[CommandServer]:
    with CommandServer("openai") as server:
        yield server


@pytest.fixture
def kernelrl(tmp_path: Path, server: OpenAIServer, command_server: CommandServer) -> Command:
    (tmp_path / "small.yaml").write_text(RECIPE.format(url=server.url))
    base = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    def call(*arguments: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
        done = command_server.run(*arguments, cwd=tmp_path, env={**base, "OPENAI_API_KEY": key})
        assert "Traceback" not in done.stderr, done.stderr
        for text in (done.stdout, done.stderr, *(p.read_text() for p in tmp_path.rglob("*") if p.is_file())):
            assert KEY not in text
        return done

    return call


def test_eval_reports_the_solved_tasks(kernelrl: Command, tmp_path: Path) -> None:
    done = kernelrl("eval", "small.yaml", "--json", "--output", "report.json")
    assert done.returncode == 0, done.stderr
    # Two of the four tasks are always solved.
    assert json.loads(done.stdout)["pass@1"] == 0.5
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert len(rows) == 8
    assert all(set(row["reply"]["logprobs"]) == {-0.25} for row in rows)


def finished(folder: Path) -> int:
    """Samples that an evaluation with `--output report.json` has recorded; the first line describes it."""
    return sum(max(0, path.read_text().count("\n") - 1) for path in folder.glob("report.json*.partial"))


def test_repeated_status_429_ends_with_one_message_and_the_next_call_continues(
    kernelrl: Command, server: OpenAIServer, tmp_path: Path
) -> None:
    server.fail = lambda body: "429" if len(server.requests) > 5 and finished(tmp_path) else ""
    done = kernelrl("eval", "small.yaml", "policy.max_concurrent=1", "--output", "report.json")
    assert done.returncode == 1
    assert done.stderr.count("status 429") == 1
    assert "kernelrl eval with the same --output" in done.stderr
    missing = 8 - finished(tmp_path)
    server.fail, server.requests = lambda body: "", []
    assert kernelrl("eval", "small.yaml", "policy.max_concurrent=1", "--output", "report.json").returncode == 0
    # One probe, and the samples of 8 that the first call had not finished. A request may have been repeated.
    asked = {json.dumps(body, sort_keys=True) for body in server.requests}
    assert len(asked) == 1 + missing < 1 + 8


def test_a_missing_key_is_a_missing_prerequisite(kernelrl: Command) -> None:
    done = kernelrl("eval", "small.yaml", key="")
    assert done.returncode == 3
    assert "the environment variable OPENAI_API_KEY is not set" in done.stderr


def test_an_unknown_model_is_a_usage_error_with_the_nearest_name(kernelrl: Command) -> None:
    done = kernelrl("eval", "small.yaml", "policy.model=tinny")
    assert done.returncode == 2
    assert "did you mean 'tiny'" in done.stderr


def test_a_server_without_the_interface_is_named_at_once(kernelrl: Command) -> None:
    files = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    threading.Thread(target=files.serve_forever, daemon=True).start()
    try:
        done = kernelrl("eval", "small.yaml", f"policy.base_url=http://127.0.0.1:{files.server_port}/v1")
    finally:
        files.shutdown()
        files.server_close()
    assert done.returncode == 2
    assert "refuses the request (501)" in done.stderr
    assert "correct policy.base_url, which must end in /v1" in done.stderr


def test_a_run_is_refused_since_the_policy_cannot_train(kernelrl: Command, server: OpenAIServer) -> None:
    done = kernelrl("run", "small.yaml")
    assert done.returncode == 2
    assert "policy 'openai' cannot learn" in done.stderr
    assert server.requests == []


def test_validating_and_planning_need_neither_key_nor_endpoint(kernelrl: Command, server: OpenAIServer) -> None:
    assert kernelrl("validate", "small.yaml", key="").returncode == 0
    planned = kernelrl("run", "small.yaml", "--dry-run", key="")
    assert planned.returncode == 0
    assert "missing: environment variable OPENAI_API_KEY" in planned.stdout
    assert server.requests == []
