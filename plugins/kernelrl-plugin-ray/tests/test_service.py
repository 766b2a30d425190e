"""The evaluator behind `kernelrl serve`: a cluster of this machine, started and ended by the server."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import CommandServer
from kernelrl_service_process import Services

from kernelrl_core.api.components import Use, registry

pytest.importorskip("ray")
pytest.importorskip("kernelrl_service")

pytestmark = pytest.mark.slow

EVALUATE_S = 300


def check(url: str, kernel: str) -> dict[str, Any]:
    """The response of `/v1/check`."""
    body = json.dumps({"task": "example", "kernel": kernel}).encode()
    request = urllib.request.Request(f"{url}/v1/check", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=EVALUATE_S) as response:
        found: dict[str, Any] = json.load(response)
    return found


def test_a_server_evaluates_on_a_cluster(tmp_path: Path, command_server: CommandServer) -> None:
    example = registry().make("backends", Use("triton")).facts.example
    (tmp_path / "example.py").write_text(example.reference)
    options = ("--evaluator", "ray", "--tasks", "example.py", "evaluator.judges=1")
    with Services(command_server, tmp_path, *options, fakes=False) as services:
        url = services.start().url
        right = check(url, example.kernel)
        wrong = check(url, example.kernel.replace("return ", "return 1 + "))
    assert [one["outcome"] for one in (right, wrong)] == ["correct", "incorrect"]
    assert right["evaluator"] == "ray"
