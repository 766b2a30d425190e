"""Servers of the tests: in the process of a test, and in a process of its own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import httpx

from kernelrl_core.api.evaluators import Evaluator
from kernelrl_service.server import Server

__all__ = ["PATIENCE_S", "PROCESS", "RIGHT", "TASK", "Process", "Running"]

PATIENCE_S = 180.0
"""Deadline of a condition that a busy machine may delay."""
TASK = "relu"
RIGHT = "class ModelNew: pass  # right"
PROCESS = Path(__file__).with_name("server_process.py")


@attrs.frozen
class Running:
    """A server in this process and a client of it."""

    server: Server
    http: httpx.AsyncClient
    evaluator: Evaluator

    async def evaluate(self, source: str = RIGHT, **more: Any) -> httpx.Response:
        """The response to an evaluation; `wait` and `headers` are those of the request, the rest is its body."""
        wait, headers = more.pop("wait", 30), more.pop("headers", {})
        body = {"source": source, "backend": "triton", "task_id": TASK, **more}
        return await self.http.post("/v1/evaluations", params={"wait": wait}, json=body, headers=headers)


@attrs.define
class Process:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: Mapping[str, str]

    @property
    def url(self) -> str:
        """Its base URL."""
        return self.address["base_url"]

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
