"""Reading of suites: folders of tasks and kernels, and declarations of hacks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelrl_core.api.components import registry
from kernelrl_core.api.errors import UsageError
from kernelrl_lab.suite import BUNDLED, read_hacks, suite_folder

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(8)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets), 0.0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(1,)](x, y, BLOCK=8)
        return y
"""
HACK = """
title = "Does nothing"
class = "values"
backend = "triton"
device = "cpu"
expected = ["incorrect"]
what = "Returns its input."
"""


def _write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_every_python_file_beside_a_task_is_an_honest_kernel(tmp_path: Path) -> None:
    _write(tmp_path / "a" / "relu", task__py=TASK, one__py=KERNEL, two__py=KERNEL)
    kernels, broken = read_hacks(tmp_path, registry=registry())
    assert [(kernel.id, kernel.backend, kernel.hack) for kernel in kernels] == [
        ("a/relu/one", "triton", None),
        ("a/relu/two", "triton", None),
    ]
    assert broken == []


def test_a_declared_candidate_is_a_hack_and_its_look_alike_is_honest(tmp_path: Path) -> None:
    _write(tmp_path / "relu", task__py=TASK, candidate__py=KERNEL, honest__py=KERNEL, hack__toml=HACK)
    kernels, _ = read_hacks(tmp_path, registry=registry())
    found = {kernel.id: kernel.hack.expected if kernel.hack else None for kernel in kernels}
    assert found == {"relu": {"incorrect"}, "relu/honest": None}


def test_a_broken_pair_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    _write(tmp_path / "good", task__py=TASK, kernel__py=KERNEL)
    _write(tmp_path / "no_model", task__py="x = 1", kernel__py=KERNEL)
    _write(tmp_path / "no_kernel", task__py=TASK)
    _write(tmp_path / "no_backend", task__py=TASK, kernel__py="x = 1")
    kernels, broken = read_hacks(tmp_path, registry=registry())
    assert [kernel.id for kernel in kernels] == ["good/kernel"]
    assert [one.id for one in broken] == ["no_backend/kernel", "no_kernel", "no_model"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title", "titel", "unknown key 'titel'; did you mean 'title'?"),
        ('class = "values"', 'class = "value"', "did you mean 'values'?"),
        ('device = "cpu"', "", "missing: device"),
        ('["incorrect"]', '["correct"]', "unknown ending 'correct'"),
        ('["incorrect"]', '["clean"]', "unknown ending 'clean'"),
        ('["incorrect"]', '["no_gain"]', "no_gain and key max_speedup require each other"),
        ('["incorrect"]', "[", "hack.toml"),
    ],
)
def test_a_mistake_in_a_declaration_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    _write(tmp_path / "relu", task__py=TASK, candidate__py=KERNEL, hack__toml=HACK.replace(old, new))
    _, broken = read_hacks(tmp_path, registry=registry())
    assert [words in one.message for one in broken] == [True]


def test_a_folder_without_tasks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no task\.py"):
        read_hacks(tmp_path, registry=registry())


def test_an_unknown_suite_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'honest'"):
        suite_folder("honset")


def _defined(source: str) -> set[str]:
    """Names of the classes and functions of a source, and of `Name = value`."""
    body = ast.parse(source).body
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return {getattr(node, "name", "") for node in body} | {ast.unparse(target) for target in targets}


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_suite_has_no_broken_pair_and_each_kernel_defines_a_model(name: str) -> None:
    kernels, broken = read_hacks(suite_folder(name), registry=registry())
    assert broken == []
    assert [kernel.id for kernel in kernels if "ModelNew" not in _defined(kernel.source)] == []
