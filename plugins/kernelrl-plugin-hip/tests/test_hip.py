"""The backend `hip` without compiler and GPU: options, requirements, architectures, prompts, facts. With a GPU: its
examples."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api import Requires
from kernelrl_core.api.backends import Example
from kernelrl_core.api.components import RecipeError, registry
from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.episodes import recipe_from_mapping
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_hip import runner as runner_module
from kernelrl_plugin_hip.archs import arch_facts, chosen_archs, installed_archs
from kernelrl_plugin_hip.backend import HipBackend
from kernelrl_plugin_hip.config import HipConfig
from kernelrl_plugin_hip.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_hip.runner import HipRunner
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request

EXAMPLES = (ONE_SHOT, *FEW_SHOT)
_REST = {
    "tasks": {"use": "starter"},
    "policy": {"use": "torch", "warm_start": None},
    "rewards": {"r": {"use": "correctness"}},
}


@pytest.mark.parametrize(
    "arch", ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx90a:sramecc+:xnack-", "gfx9-4-generic", "auto"]
)
def test_well_formed_architectures_are_accepted(arch: str) -> None:
    assert not list(HipConfig(arch=arch).problems())


@pytest.mark.parametrize("arch", ["", "gfx", "90a", "GFX90A", "sm_90", "gfx90a ", "gfx90a;gfx942", "gfx90a -include x"])
def test_malformed_architectures_are_problems(arch: str) -> None:
    (problem,) = HipConfig(arch=("gfx90a", arch)).problems()
    assert repr(arch) in problem


@given(st.text(max_size=12))
def test_accepted_architecture_is_one_word_with_prefix_gfx(arch: str) -> None:
    if arch != "auto" and not list(HipConfig(arch=arch).problems()):
        assert arch.startswith("gfx")
        assert len(arch.split()) == 1
        assert ";" not in arch


def test_empty_list_of_architectures_is_a_problem() -> None:
    assert list(HipConfig(arch=()).problems())


@pytest.mark.parametrize(("given_", "meant"), [("gfx942", "gfx942"), (["gfx90a", "gfx942"], ("gfx90a", "gfx942"))])
def test_recipe_has_one_architecture_or_several(given_: object, meant: object) -> None:
    loaded = recipe_from_mapping({**_REST, "backend": {"use": "hip", "arch": given_}}, registry=registry(), name="r")
    assert loaded.recipe.backend.options == HipConfig(arch=meant)


def test_a_recipe_with_a_malformed_architecture_is_refused() -> None:
    with pytest.raises(RecipeError, match="say, gfx90a"):
        recipe_from_mapping({**_REST, "backend": {"use": "hip", "arch": "mi300"}}, registry=registry(), name="r")


def test_compiling_needs_hipcc_and_running_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("g++", "hipcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    assert HipConfig(mode="compile").requires() == Requires()
    running = HipConfig(mode="gpu").requires()
    assert (running.gpu, "backend.mode=compile" in running.fix) == ("amd", True)
    (tmp_path / "hipcc").unlink()
    missing = HipConfig().requires()
    assert missing.executables == ("hipcc",)
    assert "ROCm" in missing.fix
    both = HipConfig(mode="gpu").requires()
    assert (both.executables, both.gpu) == (("hipcc",), "amd")
    assert missing.fix in both.fix
    assert "backend.mode=compile" in both.fix


def test_gpus_are_read_from_the_driver(tmp_path: Path) -> None:
    for node, version in enumerate(["0", "90010", "90402", "90402", "90500", "100300", "110001"]):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 1\ngfx_target_version {version}\nfw 3\n")
    assert installed_archs(tmp_path) == ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1101")
    assert installed_archs(tmp_path / "none") == ()


def test_the_architecture_is_in_the_environment_of_the_process_that_imports_torch() -> None:
    environment = HipRunner().environment("gpu", {"arch": ["gfx90a", "gfx950"]})
    assert environment["PYTORCH_ROCM_ARCH"] == "gfx90a;gfx950"


def test_build_uses_the_architecture() -> None:
    spec = HipRunner().toolchain({"arch": "gfx942", "flags": ["-O3"]}, "gpu")
    assert (spec["language"], spec["arch"], spec["flags"], spec["device_only"]) == ("hip", ["gfx942"], ["-O3"], False)
    assert HipRunner().toolchain(attrs.asdict(HipConfig()), "compile")["device_only"]
    assert chosen_archs("auto")


@pytest.mark.parametrize(
    ("wanted", "has_gpu", "vendor", "mode"),
    [
        ("auto", True, "amd", "gpu"),
        ("auto", True, "nvidia", "compile"),
        ("auto", False, "amd", "compile"),
        ("gpu", False, "nvidia", "gpu"),
        ("compile", True, "amd", "compile"),
    ],
)
def test_mode_auto_follows_the_machine(
    wanted: str, has_gpu: bool, vendor: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "gpu_vendors", lambda: frozenset({vendor}))
    assert HipRunner().mode({"mode": wanted}, has_gpu) == mode


def test_prompts_contain_facts_of_the_architecture() -> None:
    assert "160 KiB" in HipBackend(HipConfig(arch="gfx950")).facts.instructions
    assert "64 lanes" in arch_facts(["gfx90a:xnack-"])
    assert "64 KiB" in arch_facts(["gfx942", "gfx950"])
    assert arch_facts(["gfx1030"]) == "The code is compiled for gfx1030."


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_kernels_of_examples_are_reached_from_forward(example: Example) -> None:
    facts = HipBackend(HipConfig()).source_facts(example.kernel)
    assert [kernel.reached for kernel in facts.kernels] == [True]
    assert {source.language for source in facts.embedded} == {"cpp", "hip"}


@pytest.mark.parametrize(
    "launch", ["hipLaunchKernelGGL((half<float>), dim3(1), dim3(64), 0, 0, p)", "half<float><<<1, 64>>>(p)"]
)
def test_launches_of_templates_are_found(launch: str) -> None:
    template = "template <typename T> __global__ void half(T* p) { *p /= 2; }\n"
    source = ONE_SHOT.kernel.replace(
        "torch::Tensor scaled_difference(torch::Tensor a, torch::Tensor b) {",
        f"{template}torch::Tensor scaled_difference(torch::Tensor a, torch::Tensor b) {{ float* p = nullptr; {launch};",
        1,
    )
    facts = {kernel.name: kernel for kernel in HipBackend(HipConfig()).source_facts(source).kernels}
    assert facts["half"].reached


def test_kernel_without_a_launch_is_not_reached() -> None:
    source = ONE_SHOT.kernel.replace("hipLaunchKernelGGL(scaled_difference_kernel, ", "(void)(")
    (kernel,) = HipBackend(HipConfig()).source_facts(source).kernels
    assert (kernel.launched, kernel.reached) == (False, False)


def test_bound_function_not_called_by_forward_does_not_reach_its_kernel() -> None:
    source = ONE_SHOT.kernel.replace("return extension.scaled_difference(a.contiguous(), b.contiguous())", "return a")
    (kernel,) = HipBackend(HipConfig()).source_facts(source).kernels
    assert not kernel.reached


@pytest.mark.gpu
@pytest.mark.skipif("amd" not in gpu_vendors(), reason="needs an AMD GPU")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_examples_are_correct(evaluate: Evaluate, example: Example) -> None:
    assert evaluate(make_request(example.kernel, example.reference, "hip")).outcome is Outcome.CORRECT
