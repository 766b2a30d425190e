"""The plan of a cluster's actors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.config import NonNegativeInt, PositiveInt
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_plugin_ray.config import RayConfig
from kernelrl_plugin_ray.plan import make_plan


def node(cores: int, gpus: int = 0, model: str = "H100", *, alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": float(cores), **({"GPU": float(gpus), f"accelerator_type:{model}": 1.0} if gpus else {})}
    return {"Alive": alive, "Resources": resources}


def test_without_gpus_each_core_has_a_judge() -> None:
    plan = make_plan([node(4), node(2)], RayConfig())
    assert (plan.judges, plan.builders, plan.lanes, plan.options) == (6, 0, 1, {"num_cpus": 1})


def test_each_gpu_has_a_judge_and_the_other_cores_build() -> None:
    plan = make_plan([node(16, 2), node(8)], RayConfig())
    assert (plan.judges, plan.lanes, plan.options["num_gpus"], plan.options["num_cpus"]) == (2, 4, 1, 4)
    assert plan.builders == 24 - 2 * 4


def test_a_lost_node_does_not_count() -> None:
    assert make_plan([node(4), node(8, alive=False)], RayConfig()).judges == 4


def test_several_gpu_types_need_a_choice() -> None:
    with pytest.raises(MissingPrerequisite, match="A100, H100") as caught:
        make_plan([node(8, 1), node(8, 1, "A100")], RayConfig())
    assert caught.value.fix == "choose one: evaluator.resources={A100: {}}"


def test_a_chosen_type_has_its_resources_and_excludes_the_others() -> None:
    config = RayConfig(resources={"A100": {"CPU": 6, "fast_disk": 1}})
    plan = make_plan([node(8, 4), node(8, 1, "A100")], config)
    assert (plan.judges, plan.options["num_cpus"]) == (1, 6)
    assert plan.options["resources"] == {"fast_disk": 1, "accelerator_type:A100": 0.001}


@pytest.mark.parametrize(
    ("nodes", "hint"), [([node(8, 1)], "did you mean 'H100'"), ([node(8)], "the cluster has no GPU")]
)
def test_an_absent_gpu_type_suggests_the_nearest(nodes: list[dict[str, Any]], hint: str) -> None:
    with pytest.raises(MissingPrerequisite, match=hint):
        make_plan(nodes, RayConfig(resources={"H10": {}}))


@given(
    st.lists(st.builds(node, st.integers(1, 64), st.integers(0, 8)), min_size=1, max_size=6),
    st.none() | st.integers(1, 20).map(PositiveInt),
    st.none() | st.integers(0, 20).map(NonNegativeInt),
)
def test_judges_fit_into_the_cluster(
    nodes: list[dict[str, Any]], judges: PositiveInt | None, builders: NonNegativeInt | None
) -> None:
    plan = make_plan(nodes, RayConfig(judges=judges, build_workers=builders))
    gpus = sum(int(one["Resources"].get("GPU", 0)) for one in nodes)
    assert 1 <= plan.judges <= (judges or 1000)
    assert plan.lanes >= 1
    assert plan.builders >= 0
    assert plan.judges <= gpus or not gpus


@pytest.mark.parametrize("address", ["box", "box:", "http://box:6379", "ray://box", "ray:/box:1", "box:6379/x"])
def test_a_wrong_address_is_a_problem_of_the_recipe(address: str) -> None:
    assert any("no address" in text for text in RayConfig(address=address).problems())


@pytest.mark.parametrize("address", [None, "auto", "box:6379", "10.0.0.1:6379", "ray://gpu-box.lab:10001"])
def test_an_address_of_ray_is_none(address: str | None) -> None:
    assert not list(RayConfig(address=address).problems())


def test_two_gpu_types_are_a_problem_of_the_recipe() -> None:
    assert "not comparable" in next(iter(RayConfig(resources={"H100": {}, "A100": {}}).problems()))
