"""Random values of parameters and running statistics."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from small_tasks import reference  # noqa: E402

from kernelrl_judge.task.drawn_parameters import drawn_parameters  # noqa: E402
from kernelrl_judge.task.parameter_match import ParameterMatch, read_parameter_match  # noqa: E402
from kernelrl_judge.task.reference import Reference  # noqa: E402

NORM = "self.norm = torch.nn.BatchNorm1d(64); self.eval()"


def values(task: Reference, match: ParameterMatch | None = None) -> dict[str, torch.Tensor]:
    return drawn_parameters(task, match or ParameterMatch()).reference.state


def test_affine_weights_biases_and_statistics_are_drawn_and_variances_stay_positive() -> None:
    drawn = values(reference("return self.norm(x)", init=NORM))
    for name in ("norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"):
        assert len(drawn[name].unique()) == 64
    assert bool((drawn["norm.running_var"] > 0).all())
    assert drawn["norm.num_batches_tracked"] == 0


def test_an_adapter_of_zeros_gets_an_effect() -> None:
    assert bool(
        (values(reference("return x @ self.b", init="self.b = torch.nn.Parameter(torch.zeros(64, 8))"))["b"] != 0).all()
    )


def test_a_bias_of_half_precision_is_drawn_so_large_that_the_tolerance_does_not_hide_it() -> None:
    task = reference(
        "return x + self.b",
        init="self.b = torch.nn.Parameter(torch.zeros(64).half())",
        inputs="torch.randn(8, 64).half()",
    )
    assert float(values(task)["b"].float().abs().median()) > 0.2


def test_a_query_of_half_precision_is_drawn_so_small_that_rounding_does_not_decide_a_softmax() -> None:
    task = reference(
        "return ((x.float() @ self.q.float()).softmax(0)[:, :, None] * x.float()).sum(0).to(x.dtype)",
        init="self.q = torch.nn.Parameter((torch.randn(512) / 512**0.5).bfloat16())",
        inputs="torch.randn(6, 40, 512, dtype=torch.bfloat16)",
    )
    assert float(values(task)["q"].float().std()) < 0.15


def test_a_scale_keeps_its_size() -> None:
    drawn = values(
        reference(
            "return x * self.s",
            init="self.s = torch.nn.Parameter(3 * torch.randn(4096, 64)[:, 0])",
            inputs="torch.randn(8, 4096)",
        )
    )
    assert 2 < float(drawn["s"].std()) < 12


def test_a_few_values_reach_a_bound_that_the_initial_ones_do_not() -> None:
    task = reference("return x @ self.w.clamp(-0.5, 0.5)", init="self.w = torch.nn.Parameter(torch.randn(64, 64) / 16)")
    assert float(values(task)["w"].abs().max()) > 0.6


@pytest.mark.parametrize("buffer", ["torch.arange(64.0)", "torch.zeros(64, dtype=torch.long)", "torch.randn(64)"])
def test_tables_and_integers_are_unchanged(buffer: str) -> None:
    task = reference("return x + self.t", init=f"self.register_buffer('t', {buffer})")
    other = task.with_other_parameters()
    assert torch.equal(values(task)["t"], other.state["t"])


def test_initial_values_are_used_if_the_reference_is_not_finite_for_drawn_ones() -> None:
    task = reference("return x / (self.z * 0 + (self.z == 0))", init="self.z = torch.nn.Parameter(torch.zeros(64))")
    assert bool((values(task)["z"] == 0).all())


def test_drawn_values_have_an_effect_if_a_function_in_an_attribute_reads_the_parameter() -> None:
    closure = "w = torch.nn.Parameter(torch.ones(64)); self.w = w; self.scaled = lambda x: x * w"
    used = drawn_parameters(reference("return self.scaled(x)", init=closure), ParameterMatch()).reference
    (x,) = used.inputs(0)
    torch.testing.assert_close(used.expected([x]), x * used.state["w"])
    torch.testing.assert_close(used.exact([x]), x.double() * used.state["w"].double())


def test_a_parameter_that_the_candidate_lacks_has_the_value_of_its_constructor() -> None:
    init = "self.w = torch.nn.Parameter(torch.randn(64)); self.b = torch.nn.Parameter(torch.zeros(64))"
    task = reference("return x * self.w + self.b", init=init)
    drawn = values(task, ParameterMatch(frozenset({"w", "b"})))
    assert torch.equal(drawn["w"], task.with_other_parameters().state["w"])
    assert bool((drawn["b"] != 0).any())


def test_a_parameter_without_visible_effect_is_drawn_for_a_candidate_that_lacks_it() -> None:
    task = reference("return x + self.s", init="self.s = torch.nn.Parameter(1e-6 * torch.randn(64))")
    assert float(values(task, ParameterMatch(frozenset({"s"})))["s"].abs().max()) > 0.05


def test_every_draw_gives_other_parameters_and_other_outputs() -> None:
    draws = drawn_parameters(reference("return self.norm(x)", init=NORM), ParameterMatch())
    (x,) = draws.reference.inputs(0)
    found = []
    for _ in range(2):
        draws.draw()
        found.append((draws.reference.imposed_state["norm.weight"].clone(), draws.reference.expected([x])))
    assert not torch.equal(found[0][0], found[1][0])
    assert not torch.allclose(found[0][1], found[1][1])


def test_parameters_are_drawn_near_the_initial_ones_where_wider_draws_are_not_finite() -> None:
    init = "self.s = torch.nn.Parameter(torch.full((64,), -1.0))"
    draws = drawn_parameters(reference("return x * torch.log(-self.s * 2 - 1).exp()", init=init), ParameterMatch())
    assert draws.reference.drawn_names == ("s",)
    assert float((draws.reference.state["s"] + 1).abs().max()) < 0.5


def test_draws_leave_the_reference_of_the_task_as_it_was() -> None:
    task = reference("return self.norm(x)", init=NORM)
    before = {name: value.clone() for name, value in task.current().items()}
    drawn_parameters(task, ParameterMatch()).draw()
    assert all(torch.equal(value, before[name]) for name, value in task.current().items())


def test_parameters_that_cannot_be_distinguished_stay_equal() -> None:
    init = "self.a = torch.nn.Parameter(torch.ones(64)); self.b = torch.nn.Parameter(torch.ones(64))"
    task = reference("return x * self.a + self.b", init=init)
    indistinguishable = values(task, ParameterMatch(is_by_value=True))
    assert torch.equal(indistinguishable["a"], indistinguishable["b"])
    named = values(task)
    assert not torch.equal(named["a"], named["b"])


def test_a_malformed_note_matches_no_parameter() -> None:
    task = reference("return self.norm(x)", init=NORM)
    assert read_parameter_match("all", task.state).lacking == task.state.keys()
    note = {"names": ["norm.weight"], "renamed": 0}
    assert read_parameter_match(note, task.state) == ParameterMatch(frozenset(task.state) - {"norm.weight"})
