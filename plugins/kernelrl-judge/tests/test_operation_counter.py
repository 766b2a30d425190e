"""Floating-point operations of a reference."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from kernelrl_judge.task.operation_counter import OperationCounter


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        # Two operations for each of 2 x 3 x 4 products.
        (lambda: torch.ones(2, 3) @ torch.ones(3, 4), 48),
        (lambda: torch.nn.functional.linear(torch.ones(5, 3), torch.ones(4, 3), torch.ones(4)), 120),
        (lambda: torch.bmm(torch.ones(6, 2, 3), torch.ones(6, 3, 4)), 288),
        # 2 x 2 outputs of 3 channels, each of 9 products of 2 channels.
        (lambda: torch.nn.functional.conv2d(torch.ones(1, 2, 4, 4), torch.ones(3, 2, 3, 3)), 432),
        (lambda: torch.relu(torch.ones(8)) * 2, 0),
    ],
)
def test_operations_are_counted(call: object, flops: int) -> None:
    with torch.no_grad(), OperationCounter() as counter:
        call()  # type: ignore[operator]
    assert counter.flops == flops
    assert counter.has_convolutions == (flops == 432)


def test_counting_does_not_import_the_compiler_of_torch() -> None:
    program = (
        "import sys, torch; from kernelrl_judge.task.operation_counter import OperationCounter\n"
        "with OperationCounter(): torch.ones(2, 2) @ torch.ones(2, 2)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
