"""Fixtures that start servers."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kernelrl_core.api.components import registry
from kernelrl_core.api.evaluators import Evaluator
from kernelrl_service.app import Application
from kernelrl_service.catalogue import read_served
from kernelrl_service.options import Limits, ServeOptions
from kernelrl_service.serve import open_server
from kernelrl_service.tokens import Tokens
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import REFERENCE

sys.path.append(str(Path(__file__).parent))

from service_servers import PATIENCE_S, PROCESS, TASK, Process, Running


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    """A file with the task that every server of these tests serves."""
    path = tmp_path / f"{TASK}.py"
    path.write_text(REFERENCE)
    return path


@pytest.fixture(scope="session")
def start_server() -> Callable[..., contextlib.AbstractAsyncContextManager[Running]]:
    """Starts a server in this process: `async with start_server(directory, evaluator, limits=…) as server`."""
    return _started


@pytest.fixture
def running(tmp_path: Path) -> Callable[..., contextlib.AbstractAsyncContextManager[Running]]:
    """As `start_server`, in the directory of the test."""
    return functools.partial(_started, tmp_path)


@contextlib.asynccontextmanager
async def _started(
    directory: Path,
    evaluator: Evaluator | None = None,
    *,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    evaluator = evaluator or FakeEvaluator()
    state, task = directory / "state", directory / f"{TASK}.py"
    state.mkdir(exist_ok=True)
    task.write_text(REFERENCE)
    made = ServeOptions(state=state, tasks=(str(task),), limits=limits or Limits(), **options)
    served = read_served(made, registry())
    async with open_server(made, tokens, served, evaluator, registry(), print) as server:
        transport = httpx.ASGITransport(Application(server).asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8790", timeout=PATIENCE_S) as http:
            yield Running(server, http, evaluator)


@pytest.fixture
def start_process(tmp_path: Path, task_file: Path) -> Iterator[Callable[..., Process]]:
    """Starts `server_process.py` with the options of `kernelrl serve`; waits until it is ready."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, seconds: float | None = 0.0) -> Process:
        """
        Args:
            seconds: duration of an evaluation by the evaluator of the test kit; None: the evaluator of the options.
        """
        fixed = ["--state", str(tmp_path / "state"), "--tasks", str(task_file), "--listen", "127.0.0.1:0"]
        command = [sys.executable, str(PROCESS), str(seconds), *fixed, *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the server ended with {process.wait()}"
        return Process(process, json.loads(line))

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
