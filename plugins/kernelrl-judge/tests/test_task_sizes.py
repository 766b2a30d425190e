"""Sizes of a task, reduced to fit into memory."""

from __future__ import annotations

import types

from hypothesis import given
from hypothesis import strategies as st

from kernelrl_judge.task.source import fit, free_sizes, load_reference, resized

TASK = """
import torch
import torch.nn as nn

batch_size = {batch}
features = 64
width = 32

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 8)

    def forward(self, x):
        return self.linear(x).reshape(-1, width, 8)

def get_inputs():
    return [torch.rand(batch_size, width, features)]

def get_init_inputs():
    return [features]
"""


def task(batch: int) -> types.ModuleType:
    return load_reference(TASK.format(batch=batch), "mine")


def test_only_sizes_that_nothing_but_the_inputs_use_are_free() -> None:
    assert free_sizes(task(1024)) == {"batch_size": 1024}


def test_free_sizes_are_halved_until_the_inputs_fit() -> None:
    # 1024 x 32 x 64 floats are 8 MiB: three halvings lead to 1 MiB
    module = task(1024)
    assert fit(module, 1 << 20) == {"batch_size": 128}
    assert module.get_inputs()[0].shape == (128, 32, 64)


def test_sizes_that_fit_are_unchanged() -> None:
    assert fit(task(16), 1 << 20) == {}


def test_a_task_without_free_sizes_is_unchanged() -> None:
    assert fit(load_reference(TASK.format(batch=1), "mine"), 1) == {}


def test_a_loaded_module_has_the_reduced_sizes() -> None:
    module = load_reference(TASK.format(batch=1024), "mine", 1 << 20)
    assert module.batch_size == 128


@given(st.integers(1, 1 << 16), st.integers(1, 1 << 28))
def test_the_inputs_fit_or_nothing_is_left_to_halve(batch: int, budget: int) -> None:
    module = task(batch)
    fit(module, budget)
    assert module.batch_size * 32 * 64 * 4 <= budget or module.batch_size == 1


LITERALS = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width=48):
        super().__init__()

    def forward(self, x, y):
        return x.reshape(-1, 64) @ y

def get_inputs():
    return [torch.rand(200, 64), torch.rand((64, 96)), torch.rand(48)]

def get_init_inputs():
    return []
"""


def test_sizes_written_in_get_inputs_alone_are_other_ones_within_the_context() -> None:
    module = load_reference(LITERALS, "mine")
    with resized(module, least=4) as has_sizes:
        shapes = [tuple(tensor.shape) for tensor in module.get_inputs()]
    assert (has_sizes, shapes) == (True, [(101, 64), (64, 49), (48,)])
    assert module.get_inputs()[0].shape == (200, 64)
