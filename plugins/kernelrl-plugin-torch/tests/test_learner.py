from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_plugin_torch.language_model import PromptAndReply
from kernelrl_plugin_torch.learner import clipped_step, mean_gap, micro_batches


@given(st.integers(0, 40), st.integers(1, 30))
def test_micro_batches_keep_the_order_and_the_token_limit(n: int, budget: int) -> None:
    replies = [PromptAndReply((1,) * (i % 5 + 1), (2,) * (i % 3)) for i in range(n)]
    made = list(micro_batches(replies, budget))
    assert [reply for batch in made for reply in batch] == replies
    for batch in made:
        assert len(batch) == 1 or sum(len(s.prompt) + len(s.reply) for s in batch) <= budget


def test_the_mismatch_is_a_mean_over_tokens() -> None:
    assert mean_gap([[-1.0, -2.0], [-3.0]], [[-1.5, -2.0], [-2.0]]) == pytest.approx(0.5)  # (0.5 + 0 + 1) / 3
    assert mean_gap([], []) == 0


@pytest.mark.parametrize(("gradient", "weight"), [(3.0, 0.5), (math.inf, 1.0), (math.nan, 1.0)])
def test_a_gradient_that_is_not_finite_changes_no_weight(gradient: float, weight: float) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.tensor([gradient])
    norm = clipped_step(torch.optim.SGD([parameter], lr=0.5), [parameter], 1.0)
    assert math.isfinite(norm) == math.isfinite(gradient)
    assert parameter.item() == pytest.approx(weight, abs=1e-5)
    assert parameter.grad is None
