"""The domain of inputs, read from their draws or declared by a task."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from small_tasks import reference  # noqa: E402

from kernelrl_judge.task.domain import (  # noqa: E402
    AS_DRAWN,
    Domain,
    drawn_domains,
)
from kernelrl_judge.task.source import TaskError  # noqa: E402

NUMBERS = Domain("numbers")


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        ("torch.randn(4, 8)", NUMBERS),
        ("torch.randn(4, 8).t().contiguous() * 0.1 + 3", NUMBERS),
        ("torch.randn(9)[1:].view(2, 4)", NUMBERS),
        ("torch.empty(4, 8).normal_()", NUMBERS),
        ("torch.rand(4, 8)", NUMBERS),
        ("2 - torch.rand(4, 8)", Domain("uniform", 1.0, 2.0)),
        ("torch.rand(4, 8) + 0.5", Domain("uniform", 0.5, 1.5)),
        ("torch.randint(3, 9, (8,))", Domain("integers", 3, 8)),
        ("torch.randint(9, (8,))", Domain("integers", 0, 8)),
        ("torch.rand(4, 8) > 0.5", Domain("truth")),
    ],
)
def test_the_domain_of_a_scaled_shifted_or_reshaped_draw_is_found(drawn: str, expected: Domain) -> None:
    assert drawn_domains(lambda: [eval(drawn)]) == [expected]


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.ones(4, 8)",
        "torch.arange(32.0)",
        "torch.randn(4, 8).sort()[0]",
        "torch.randn(4, 8).softmax(1)",
        "torch.nn.functional.normalize(torch.randn(4, 8))",
        "torch.nn.functional.one_hot(torch.randint(0, 4, (8,)))",
        "(lambda a: a + a.T)(torch.randn(8, 8))",
        "(lambda a: a @ a.T)(torch.randn(8, 8))",
        "torch.randn(8, 8).tril()",
        "torch.diag(torch.randn(8))",
        "torch.randint(0, 9, (8,)).cumsum(0)",
        "torch.randint(0, 9, (8,)).float()",
        "(lambda a: torch.cat([a, a], 1))(torch.randn(4, 4))",
        "torch.randperm(8)",
        "torch.arange(8) < torch.randint(1, 9, (4, 1))",
        "torch.randn(4, 8).masked_fill(torch.rand(4, 8) < 0.2, -torch.inf)",
    ],
)
def test_every_other_input_is_as_drawn(drawn: str) -> None:
    assert drawn_domains(lambda: [eval(drawn)]) == [AS_DRAWN]


def test_inputs_that_share_a_draw_are_as_drawn() -> None:
    def draw() -> list[torch.Tensor]:
        x = torch.randn(4, 8)
        return [x, x.clone(), torch.randn(4, 8)]

    assert drawn_domains(draw) == [AS_DRAWN, AS_DRAWN, NUMBERS]


def test_a_draw_with_assigned_elements_is_as_drawn() -> None:
    def draw() -> list[torch.Tensor]:
        x = torch.randn(4, 8)
        x[:, 0] = torch.rand(4)
        return [x]

    assert drawn_domains(draw) == [AS_DRAWN]


def test_uniform_numbers_beside_other_numbers_keep_their_range() -> None:
    found = drawn_domains(lambda: [torch.randn(8), torch.rand(8)])
    assert found == [NUMBERS, Domain("uniform", 0.0, 1.0)]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("'positive'", (1e-30, math.inf)),
        ("'non-negative'", (0.0, math.inf)),
        ("'probability'", (0.0, 1.0)),
        ("[-2, 3]", (-2, 3)),
    ],
)
def test_a_declared_domain_has_bounds(declared: str, expected: tuple[float, float]) -> None:
    found = reference(
        "return x + y", "torch.randn(8).softmax(0), torch.randn(8)", "pass", "x, y", f"{{'x': {declared}}}"
    )
    assert [(one.kind, one.low, one.high) for one in found.domains] == [
        ("numbers", *expected),
        ("numbers", -math.inf, math.inf),
    ]


def test_a_declared_range_of_integers_may_have_further_values() -> None:
    found = reference("return x * 2", "torch.randint(0, 9, (8,))", domain="{'x': [0, 8, -100]}")
    assert found.domains == [Domain("integers", 0, 8, (-100,), is_declared=True)]


def test_a_declared_input_may_stay_as_drawn() -> None:
    assert reference("return x * 2", domain="{'x': 'as drawn'}").domains == [Domain(is_declared=True)]


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ("{'y': 'any'}", "task task: DOMAIN: forward has no input 'y' (there are x)"),
        ("{'x': 'positiv'}", "DOMAIN: x: unknown domain 'positiv' (did you mean 'positive'?)"),
        ("{'x': 3}", "unknown domain 3; use one of 'any'"),
        ("'positive'", "DOMAIN is no dict"),
    ],
)
def test_a_malformed_declaration_is_an_error_of_the_task(domain: str, message: str) -> None:
    with pytest.raises(TaskError) as error:
        _ = reference("return x * 2", domain=domain).domains
    assert message in str(error.value)
