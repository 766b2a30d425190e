"""A Ray cluster of this machine: equal evaluations, killed workers, cancelled requests, builds that are sent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelrl_build.store import BuildStore
from kernelrl_core.api.checkers import Evaluation
from kernelrl_core.api.components import Use, registry
from kernelrl_core.api.config import PositiveInt, unpack_files
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.evaluators import EvaluationRequest, to_json
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_plugin_ray import worker
from kernelrl_plugin_ray.config import RayConfig
from kernelrl_plugin_ray.evaluator import RayEvaluator
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import DEADLINE_S, takes_async

ray = pytest.importorskip("ray")

HANGS = "while True: pass\n"
DRIVER = """\
import asyncio, json, os, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, NoTorch())
import psutil
from kernelrl_core.api.components import Use, registry
from kernelrl_testing.values import make_request
from kernelrl_plugin_ray.config import RayConfig
from kernelrl_plugin_ray.evaluator import RayEvaluator

def below():
    return psutil.Process().children(recursive=True)

def environment(process):
    try:
        return process.environ()
    except psutil.Error:
        return {}

async def main():
    example = registry().make("backends", Use("triton")).facts.example
    evaluator = RayEvaluator(RayConfig(judges=1))
    await evaluator.start()
    found = await evaluator.evaluate(make_request(example.kernel, example.reference, "triton"))
    started = below()
    secrets = [name for process in started for name, value in environment(process).items() if value == "planted"]
    await evaluator.aclose()
    await evaluator.aclose()
    left = psutil.wait_procs(started, timeout=300)[1]
    print(json.dumps([found.outcome.value, len(started) > 3, secrets, [process.cmdline()[:3] for process in left]]))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two cores. The evaluators use the connection of this process."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def requests(count: int) -> list[EvaluationRequest]:
    """Correct and wrong kernels with hidden inputs of their own."""
    example = registry().make("backends", Use("triton")).facts.example
    wrong = example.kernel.replace("tl.store(", "0 if True else tl.store(", 1)
    sources = [example.kernel, wrong]
    return [
        make_request(sources[index % 2], example.reference, "triton", seed=f"{index:032x}") for index in range(count)
    ]


def play(config: RayConfig, scene: Callable[[RayEvaluator], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        evaluator = RayEvaluator(config)
        await evaluator.start()
        try:
            return await scene(evaluator)
        finally:
            await evaluator.aclose()

    return asyncio.run(whole())


def essence(found: Evaluation) -> tuple[Any, ...]:
    return found.outcome, found.message, found.tests_passed, found.mismatch, found.findings


async def locally(asked: list[EvaluationRequest]) -> list[Evaluation]:
    evaluator = LocalEvaluator(LocalConfig(workers=PositiveInt(1)))
    try:
        return await asyncio.gather(*map(evaluator.evaluate, asked))
    finally:
        await evaluator.aclose()


@pytest.mark.usefixtures("cluster")
def test_evaluations_equal_those_of_local_while_workers_are_killed(capfd: pytest.CaptureFixture[str]) -> None:
    asked = requests(12)

    async def scene(evaluator: RayEvaluator) -> list[Evaluation]:
        await evaluator.expect("triton")
        running = [asyncio.create_task(evaluator.evaluate(request)) for request in asked]
        assert evaluator._judges is not None
        for n_done in (2, 6):
            await asyncio.gather(*running[:n_done])
            pids = [actor.facts["pid"] for actor in evaluator._judges._actors if actor.ready]
            os.kill(pids[0], signal.SIGKILL)
        return await asyncio.gather(*running)

    found = play(RayConfig(), scene)
    assert [essence(one) for one in found] == [essence(one) for one in asyncio.run(locally(asked))]
    assert {one.outcome for one in found[::2]} == {Outcome.CORRECT}
    assert all(one.provenance["node"] for one in found)
    assert capfd.readouterr().out == ""


@pytest.mark.usefixtures("cluster")
def test_a_cancelled_evaluation_frees_its_judge() -> None:
    example = registry().make("backends", Use("triton")).facts.example
    hanging = make_request(HANGS + example.kernel, example.reference, "triton")

    async def scene(evaluator: RayEvaluator) -> Outcome:
        running = [asyncio.create_task(evaluator.evaluate(hanging)) for _ in range(4)]
        await takes_async(2)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        async with asyncio.timeout(DEADLINE_S):
            return (await evaluator.evaluate(requests(1)[0])).outcome

    assert play(RayConfig(judges=PositiveInt(1)), scene) is Outcome.CORRECT


@pytest.mark.usefixtures("cluster")
def test_workers_with_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = worker.versions
    monkeypatch.setattr(worker, "versions", lambda: {**here(), "kernelrl": "9.9"})
    with pytest.raises(MissingPrerequisite, match=r"other versions: kernelrl 0\.1\.0, here 9\.9"):
        play(RayConfig(judges=PositiveInt(1)), lambda evaluator: evaluator.expect("triton"))


@pytest.mark.usefixtures("cluster")
def test_a_gpu_type_that_no_node_has_is_missing() -> None:
    with pytest.raises(MissingPrerequisite, match="no node of the Ray cluster has a GPU of type 'H100'"):
        play(RayConfig(resources={"H100": {}}), lambda evaluator: evaluator.expect("triton"))


@pytest.mark.usefixtures("cluster")
def test_a_build_is_sent_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = registry().make("backends", Use("cpp")).facts.example
    request = make_request(example.kernel, example.reference, "cpp")
    built = asyncio.run(worker.Builder({}).build(json.dumps(to_json(request)), False, ""))
    assert len(built) == 1
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    judge = worker.Judge({}, 1)
    asyncio.run(judge._keep(*built[0]))
    key, files = built[0]
    kept = BuildStore(tmp_path / "builds").read(key)
    assert kept is not None
    assert Path(kept["path"]).is_relative_to(tmp_path)
    unpack_files(tmp_path / "other", json.loads(ray.get(files)))
    assert BuildStore(tmp_path / "other").read(key) is not None


@pytest.mark.slow
def test_a_local_cluster_gets_no_secret_and_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "SECRET_OF_A_SERVICE": "planted", "TINKER_API_KEY": "planted"}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["correct", True, [], []]
