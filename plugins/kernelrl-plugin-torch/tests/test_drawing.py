from __future__ import annotations

import math

import pytest
import torch

from kernelrl_plugin_torch.drawing import draw, keep_mask, uniforms

PROBABILITIES = [0.5, 0.3, 0.15, 0.05]


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.tensor([PROBABILITIES]).log() + 3.0


@pytest.mark.parametrize(("number", "token"), [(0.0, 0), (0.49, 0), (0.51, 1), (0.79, 1), (0.81, 2), (0.9999, 3)])
def test_a_random_number_selects_a_token_by_the_cumulative_distribution(logits, sampling, number, token) -> None:
    tokens, logprobs = draw(logits, torch.tensor([number], dtype=torch.float64), [sampling()])
    assert tokens.tolist() == [token]
    assert logprobs.tolist() == [pytest.approx(math.log(PROBABILITIES[token]), abs=1e-6)]


def test_log_probabilities_ignore_temperature_top_p_and_top_k(logits, sampling) -> None:
    tokens, logprobs = draw(logits, torch.tensor([0.99], dtype=torch.float64), [sampling(temperature=3.0, top_k=2)])
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == [pytest.approx(math.log(0.3), abs=1e-6)]


def test_log_probabilities_at_a_temperature_are_those_of_the_scaled_logits(logits, sampling) -> None:
    """p^(1/T) over its sum: with T = 0.5, 0.3² / (0.25 + 0.09 + 0.0225 + 0.0025) = 0.2466."""
    settings = sampling(temperature=0.5, logprobs_temperature=0.5)
    tokens, logprobs = draw(logits, torch.tensor([0.8], dtype=torch.float64), [settings])
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == [pytest.approx(math.log(0.09 / 0.365), abs=1e-6)]


def test_temperature_zero_selects_the_most_probable_token(logits, sampling) -> None:
    assert draw(logits, torch.tensor([0.999], dtype=torch.float64), [sampling(temperature=0.0)])[0].tolist() == [0]


@pytest.mark.parametrize(
    ("top_p", "top_k", "kept"),
    [(1.0, -1, 4), (0.5, -1, 1), (0.51, -1, 2), (0.8, 3, 2), (1.0, 3, 3), (0.0, -1, 1), (0.999, 1, 1)],
)
def test_top_p_and_top_k_keep_the_fewest_most_probable_tokens(top_p, top_k, kept) -> None:
    weights = torch.tensor(PROBABILITIES, dtype=torch.float64)
    assert keep_mask(weights, top_p, top_k).tolist() == [1.0] * kept + [0.0] * (4 - kept)


def test_tokens_with_probability_zero_are_never_sampled(sampling) -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf]])
    for number in (0.0, 0.5, 1 - 2**-53):
        assert draw(logits, torch.tensor([number], dtype=torch.float64), [sampling()])[0].tolist() == [1]


def test_random_numbers_depend_on_the_seed_and_repeat() -> None:
    assert uniforms(1, 4) == uniforms(1, 8)[:4] != uniforms(2, 4)
    assert all(0 <= number < 1 for number in uniforms(2**63 - 1, 100))
