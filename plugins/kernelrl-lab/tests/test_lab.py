"""Bundled hacks and honest kernels against the evaluator of this machine, as users get it."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from kernelrl_core.api.checkers import Finding, Severity, Verdict
from kernelrl_core.api.components import registry
from kernelrl_core.api.tasks import Outcome
from kernelrl_lab.command import command
from kernelrl_lab.running import Result, run
from kernelrl_lab.suite import SuiteKernel, read_hacks, suite_folder

SAMPLE = (
    "decoy_launch",
    "identity",
    "half_product",
    "cache_not_updated",
    "memo_by_shape",
    "lazy_output_object",
    "forged_result",
    "code_in_the_result",
)
"""One hack of each class. `kernelrl lab` evaluates all hacks."""
HONEST = (
    "attention/triton_flash",
    "cumsum/triton_carried",
    "layer_norm/triton_autograd_function",
    "linear_relu/triton_packed_by_version",
    "matmul/triton_split_k",
    "softmax/triton_masked_without_other",
    "swiglu_backward/triton_recomputed",
    "top_k/triton_repeated_maximum",
)
"""Honest kernels of different idioms. `kernelrl lab --suite honest` evaluates all."""


@functools.cache
def _hacks() -> tuple[SuiteKernel, ...]:
    return tuple(read_hacks(suite_folder("hacks"), registry=registry())[0])


def _hack(*endings: str, max_speedup: float | None = None) -> SuiteKernel:
    found = next(kernel for kernel in _hacks() if kernel.hack is not None)
    declared = attrs.evolve(found.hack, expected=frozenset(endings), max_speedup=max_speedup)
    return attrs.evolve(found, hack=declared)


def _honest() -> SuiteKernel:
    return next(kernel for kernel in _hacks() if kernel.hack is None)


def _lines(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(command, [*arguments, "--json"])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_sampled_hacks_have_an_expected_ending(one_judge_at_once: None) -> None:
    results = run([kernel for kernel in _hacks() if kernel.id in SAMPLE], registry=registry(), device="cpu").results
    assert {result.kernel.id for result in results} == {*SAMPLE}
    assert [(result.kernel.id, result.ending, result.causes) for result in results if not result.passed] == []


def test_sampled_honest_kernels_are_correct_and_clean(one_judge_at_once: None) -> None:
    kernels = read_hacks(suite_folder("honest"), registry=registry())[0]
    results = run([one for one in kernels if one.id in HONEST], registry=registry(), device="cpu").results
    assert {result.kernel.id for result in results} == {*HONEST}
    assert [(result.kernel.id, result.ending, result.causes) for result in results if not result.passed] == []


@pytest.mark.gpu
@pytest.mark.slow
def test_hacks_on_a_gpu_have_an_expected_ending() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    results = run([one for one in _hacks() if "gpu" in one.devices], registry=registry(), device="gpu").results
    assert [(result.kernel.id, result.ending, result.causes) for result in results if not result.passed] == []


def test_a_hack_passes_with_an_expected_ending_only() -> None:
    def ends(outcome: Outcome, verdict: Verdict = Verdict.CLEAN) -> bool:
        return Result(_hack("incorrect", "suspect"), outcome, verdict, None).passed

    assert ends(Outcome.INCORRECT)
    assert ends(Outcome.CORRECT, Verdict.SUSPECT)
    assert not ends(Outcome.CORRECT)
    assert not ends(Outcome.HACKED, Verdict.HACK)
    assert not ends(Outcome.INFRA_ERROR)


def test_an_honest_kernel_passes_if_it_is_correct_and_clean() -> None:
    def ends(outcome: Outcome, verdict: Verdict = Verdict.CLEAN) -> bool:
        return Result(_honest(), outcome, verdict, None).passed

    assert ends(Outcome.CORRECT)
    assert not ends(Outcome.CORRECT, Verdict.SUSPECT)
    assert not ends(Outcome.INCORRECT)
    assert not ends(Outcome.INFRA_ERROR)


def test_a_hack_without_effect_passes_up_to_its_true_speedup() -> None:
    slow = _hack("no_gain", max_speedup=0.5)
    endings = [Result(slow, Outcome.CORRECT, Verdict.CLEAN, speedup).ending for speedup in (0.1, None, 3.0)]
    assert endings == ["no_gain", "no_gain", "clean"]


def test_quarantine_excuses_a_hack_that_expects_it_and_no_honest_kernel() -> None:
    flags = ("constant_pass",)
    results = [
        Result(kernel, outcome, Verdict.CLEAN, None, quarantine=flags).passed
        for kernel, outcome in (
            (_hack("quarantined"), Outcome.CORRECT),
            (_honest(), Outcome.CORRECT),
            (_honest(), Outcome.INCORRECT),
        )
    ]
    assert results == [True, True, False]


def test_causes_are_the_evidence_of_serious_findings() -> None:
    note = Finding("slow", Severity.NOTE, "a note")
    suspect = Finding("replay", Severity.SUSPECT, "equal outputs")
    result = Result(_honest(), Outcome.CORRECT, Verdict.SUSPECT, None, (note, suspect), "a message")
    assert result.causes == ("replay: equal outputs",)


def test_without_a_gpu_its_hacks_are_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, lines = _lines("--gpu", "--only", "patched_graph_replay")
    assert code == 3
    assert [(line["id"], line["ending"], "GPU" in line["causes"][0]) for line in lines] == [
        ("patched_graph_replay", "skipped", True)
    ]


def test_a_suite_of_a_user_is_judged_and_a_broken_pair_is_named(tmp_path: Path, one_judge_at_once: None) -> None:
    bundled = suite_folder("hacks") / "memo_by_address"
    shutil.copytree(bundled, tmp_path / "memo")
    (tmp_path / "memo" / "hack.toml").unlink()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "task.py").write_text("class Model")
    code, lines = _lines("--suite", str(tmp_path))
    assert code == 1
    endings = {line["id"]: line["ending"] for line in lines}
    # Whether its memo fits to an address, or is found, depends on the allocator.
    assert endings.pop("memo/candidate") in ("hacked", "incorrect")
    assert endings == {"broken": "broken", "memo/honest": "clean"}


def test_a_task_that_cannot_be_used_is_named_and_the_others_are_judged(tmp_path: Path, one_judge_at_once: None) -> None:
    for name, shape in (("good", "20, 64"), ("unusable", "-1")):
        shutil.copytree(suite_folder("honest") / "relu_double", tmp_path / name)
        for file in (tmp_path / name).glob("triton_*.py"):
            if file.name != "triton_guards.py":
                file.unlink()
        task = tmp_path / name / "task.py"
        task.write_text(task.read_text().replace("20, 64", shape))
    code, lines = _lines("--suite", str(tmp_path))
    assert code == 1
    assert {line["id"]: line["ending"] for line in lines} == {
        "good/triton_guards": "clean",
        "unusable/triton_guards": "broken",
    }
    assert any("negative dimension" in cause for line in lines for cause in line["causes"])


def test_an_unknown_kernel_gets_the_nearest_name() -> None:
    done = CliRunner().invoke(command, ["--only", "frozen_grap"])
    assert "did you mean 'frozen_graph'" in str(done.exception)
