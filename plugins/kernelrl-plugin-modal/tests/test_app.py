"""The app, its image and its functions, executed in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import modal
import pytest

from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    from_json,
    sha256_text,
    to_json,
)
from kernelrl_plugin_modal import container, image
from kernelrl_plugin_modal.app import add_functions, build_image
from kernelrl_plugin_modal.config import EXACT_GPUS, ModalConfig, is_model_of
from kernelrl_plugin_modal.image import OURS, app_name, image_steps
from kernelrl_plugin_modal.prepare import example_request
from kernelrl_testing.waiting import takes_async

ROOT = Path(__file__).parents[3]
WHEELS = ["kernelrl-0.1.0-py3-none-any.whl", "kernelrl-judge==0.1.0"]


def locked(name: str) -> str:
    line = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith(f"{name}=="))
    return line.strip()


def test_commands_and_versions_of_the_image() -> None:
    base, apt, packages, environment, wheel, commands = image_steps(WHEELS)
    assert (base.method, base.arguments) == ("from_registry", ("nvidia/cuda:13.0.0-devel-ubuntu22.04",))
    assert (apt.method, apt.arguments) == ("apt_install", ("g++", "binutils"))
    assert packages.method == "pip_install"
    assert packages.arguments[:2] == ("torch==2.11.0", "triton==3.6.0")
    names = ("attrs", "cattrs", "click", "modal", "numpy", "orjson", "pluggy", "tenacity")
    assert {locked(name).lower() for name in names} <= set(packages.arguments)
    assert all("==" in requirement for requirement in packages.arguments)
    assert environment.arguments == (
        "KERNELRL_CACHE_DIR=/kernelrl/cache",
        "KERNELRL_PROCESSOR=modal",
        "CUDA_HOME=/usr/local/cuda",
    )
    assert wheel.arguments == (WHEELS[0], f"/kernelrl/wheels/{WHEELS[0]}")
    assert commands.arguments == (
        f"python -m pip install --no-deps /kernelrl/wheels/{WHEELS[0]} kernelrl-judge==0.1.0",
        "python -m kernelrl_plugin_modal.prepare",
    )


def test_every_step_is_a_method_of_the_client(tmp_path: Path) -> None:
    (tmp_path / WHEELS[0]).touch()
    assert isinstance(build_image(image_steps(WHEELS), tmp_path), modal.Image)


def test_the_image_has_everything_that_its_distributions_require() -> None:
    installed = {requirement.partition("==")[0] for requirement in image_steps(WHEELS)[2].arguments} | set(OURS)
    for name in OURS:
        for line in metadata.requires(name) or ():
            if "extra ==" not in line:
                assert image._NAME.match(line).group().lower() in installed  # type: ignore[union-attr]


def test_the_name_of_the_app_changes_with_options_and_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModalConfig(gpu="H100")
    names = {
        app_name(config),
        app_name(attrs.evolve(config, gpu="H200")),
        app_name(attrs.evolve(config, max_containers=3)),
    }
    assert len(names) == 3
    assert app_name(config) == app_name(attrs.evolve(config, mode="ephemeral", gpu_hour_usd=3.0))
    before = app_name(config)
    monkeypatch.setattr(image, "_content_hash", lambda name: "other sources")
    assert app_name(config) != before


@pytest.mark.parametrize(
    ("gpu", "model"),
    [
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("H200", "NVIDIA H200"),
        ("A100", "NVIDIA A100-SXM4-40GB"),
        ("A100-80GB", "NVIDIA A100 80GB PCIe"),
        ("A10", "NVIDIA A10G"),
        ("L4", "NVIDIA L4"),
        ("L40S", "NVIDIA L40S"),
        ("T4", "Tesla T4"),
        ("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    ],
)
def test_a_model_belongs_to_one_type(gpu: str, model: str) -> None:
    fitting = {EXACT_GPUS[name] for name in EXACT_GPUS if is_model_of(name, model)}
    assert fitting == {EXACT_GPUS[gpu]}


def test_functions_have_no_network_no_token_and_the_exact_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, dict[str, Any]] = {}

    class App:
        def function(self, **options: Any) -> Any:
            found[options["name"]] = options
            return lambda function: function

    add_functions(App(), ModalConfig(gpu="H100", max_containers=7, min_containers=2), modal.Image.debian_slim())  # type: ignore[arg-type]
    assert [found[name]["gpu"] for name in ("gpu", "cpu")] == ["H100!", None]
    assert [found[name]["min_containers"] for name in ("gpu", "cpu")] == [2, 0]
    for options in found.values():
        assert options["block_network"]
        assert options["restrict_modal_access"]
        assert options["_experimental_restrict_output"]
        assert options["retries"] == 0
        assert options["max_containers"] == 7
        assert "secrets" not in options


class InProcess:
    """The app's functions, called as Modal's client calls them in this process."""

    def __init__(self) -> None:
        app = modal.App("kernelrl-test", include_source=False)
        functions = add_functions(app, ModalConfig(), modal.Image.debian_slim())
        self.functions = dict(zip(("gpu", "cpu"), functions, strict=True))
        self.runner = asyncio.Runner()

    def send(self, function: str, **message: Any) -> dict[str, Any]:
        response = self.runner.run(self._send(function, message))
        assert isinstance(response, str)
        return dict(json.loads(response))

    async def _send(self, function: str, message: dict[str, Any]) -> Any:
        return await self.functions[function].local(json.dumps(message))

    def close(self) -> None:
        self.runner.run(container.close())
        self.runner.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    made = InProcess()
    yield made
    made.close()


def test_b14_a_container_describes_itself(app: InProcess) -> None:
    response = app.send("gpu", do="describe")
    assert response["versions"]["kernelrl-plugin-modal"] == metadata.version("kernelrl-plugin-modal")
    assert {"gpu", "arch", "seconds"} <= response.keys()


@pytest.mark.slow
def test_the_functions_evaluate_an_example_as_local_does(app: InProcess) -> None:
    # `benchmarks/modal_functions.py` compares all honest kernels for the CPU.
    pytest.importorskip("triton")
    request = attrs.evolve(example_request("triton"), settings=EvaluationSettings(trials=2))
    gpu = app.send("gpu", do="describe")["gpu"]
    response = app.send("gpu", do="evaluate", gpu=gpu, builds={}, request=to_json(request))
    here, there = app.runner.run(_by_local(request)), from_json(Evaluation, response["evaluation"])
    assert (there.outcome, there.tests_passed, there.findings) == (here.outcome, here.tests_passed, here.findings)
    assert there.correct
    assert response["seconds"] > 0


async def _by_local(request: EvaluationRequest) -> Evaluation:
    from kernelrl_core.api.components import component_block, registry

    evaluator = registry().make("evaluators", component_block("evaluator", {"use": "local", "workers": 1}, registry()))
    try:
        return await evaluator.evaluate(request)
    finally:
        await evaluator.aclose()


def test_an_error_of_the_evaluator_is_a_response(app: InProcess) -> None:
    request = attrs.evolve(example_request("triton"), api_version="0")
    response = app.send(
        "gpu", do="evaluate", gpu=app.send("gpu", do="describe")["gpu"], builds={}, request=to_json(request)
    )
    assert response["error"] == "InfrastructureError"
    assert "API version 0" in response["message"]


def test_a_container_packs_the_files_of_builds(app: InProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "key").write_text("built")

    class Builds:
        directory = tmp_path
        store = property(lambda self: self)

        async def compile(self, request: EvaluationRequest, has_gpu: bool, arch: str) -> list[str]:
            assert (has_gpu, arch) == (True, "9.0")
            return ["key"]

        def files(self, key: str) -> list[str]:
            return [f"objects/{key}"]

    monkeypatch.setattr(container._pool(), "builds", Builds())
    response = app.send("cpu", do="build", arch="9.0", request=to_json(example_request("cuda")))
    assert response["builds"] == {"objects/key": "YnVpbHQ="}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    async def end(reason: str) -> None:
        found.append(reason)

    monkeypatch.setattr(container, "_end_container", end)
    return found


def test_b4_a_container_ends_itself_after_an_infrastructure_error(app: InProcess, ended: list[str]) -> None:
    request = attrs.evolve(example_request("triton"), api_version="0")
    app.send("gpu", do="evaluate", gpu=app.send("gpu", do="describe")["gpu"], builds={}, request=to_json(request))
    assert len(ended) == 1


def test_b4_a_container_with_another_gpu_ends_itself_and_evaluates_nothing(app: InProcess, ended: list[str]) -> None:
    response = app.send("gpu", do="evaluate", gpu="NVIDIA H100", builds={}, request=to_json(example_request("triton")))
    assert response["error"] == "InfrastructureError"
    assert ended == ["its GPU is another model"]


@pytest.mark.slow
def test_a_cancelled_message_ends_the_candidate_and_the_next_one_is_served(app: InProcess) -> None:
    pytest.importorskip("triton")
    hanging = example_request("triton")
    source = "while True: pass\n" + hanging.source
    hanging = attrs.evolve(hanging, source=source, source_sha256=sha256_text(source))
    gpu = app.send("gpu", do="describe")["gpu"]

    async def cancelled() -> None:
        message = {"do": "evaluate", "gpu": gpu, "builds": {}, "request": to_json(hanging)}
        task = asyncio.ensure_future(app._send("gpu", message))
        await takes_async(3.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    app.runner.run(cancelled())
    request = attrs.evolve(example_request("triton"), settings=EvaluationSettings(trials=1))
    response = app.send("gpu", do="evaluate", gpu=gpu, builds={}, request=to_json(request))
    assert response["evaluation"]["outcome"] == "correct"
