"""The evaluator behind `kernelrl serve`, on the stand-in for Modal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import modal_standin
import pytest
from modal_standin import GPU, Function, evaluator_on, served

from kernelrl_core.api.components import registry
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import sha256_text
from kernelrl_testing.values import REFERENCE

pytest.importorskip("kernelrl_service")

from kernelrl_service.app import Application
from kernelrl_service.catalogue import read_served
from kernelrl_service.options import ServeOptions
from kernelrl_service.serve import open_server


def options(directory: Path, *, inline_tasks: bool = False) -> ServeOptions:
    """Options of a server with the task `relu`."""
    task = directory / "relu.py"
    task.write_text(REFERENCE)
    keys = ("evaluator.gpu=H100",)
    return ServeOptions(
        directory, evaluator="modal", tasks=(str(task),), overrides=keys, inline_tasks=inline_tasks
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modal_standin, "COLD_START_S", 0.01)


def test_evaluations_of_a_server_are_those_of_containers(tmp_path: Path) -> None:
    async def responses() -> list[dict[str, object]]:
        made = options(tmp_path)
        evaluator = evaluator_on(Function(4, served, warm_s=lambda message, draw: 0.01))
        async with (
            open_server(made, None, read_served(made, registry()), evaluator, registry(), print) as server,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(Application(server).asgi), base_url="http://localhost"
            ) as http,
        ):
            facts = (await http.get("/v1/capacity")).json()
            assert (facts["evaluator"], facts["gpu_model"]) == ("modal", GPU)
            bodies = [{"source": f"# {number}", "backend": "triton", "task_id": "relu"} for number in range(8)]
            posts = [http.post("/v1/evaluations?wait=60", json=body) for body in bodies]
            return [answer.json() for answer in await asyncio.gather(*posts)]

    found = asyncio.run(responses())
    details = [one["evaluation"]["detail"] for one in found]  # type: ignore[index]
    assert details == [sha256_text(f"# {number}") for number in range(8)]


def test_tasks_of_clients_are_refused_because_containers_confine_none(tmp_path: Path) -> None:
    async def start() -> None:
        made = options(tmp_path, inline_tasks=True)
        evaluator = evaluator_on(Function(1, served))
        async with open_server(made, None, read_served(made, registry()), evaluator, registry(), print):
            pass

    with pytest.raises(UsageError, match="does not confine tasks of others"):
        asyncio.run(start())
