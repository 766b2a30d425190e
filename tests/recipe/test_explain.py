"""`kernelrl explain` finds every name that a user can write or read, and explains it from its definition."""

from __future__ import annotations

import shlex

import pytest

from kernelrl_core.errors import LookupFailed
from kernelrl_core.interfaces.checkers import Checker
from kernelrl_core.interfaces.component import Component
from kernelrl_core.planning.load import merge_recipe
from kernelrl_core.plugins.registry import PluginInfo, Registry, registry
from kernelrl_core.recipe.explain import Explanation, _keys, explain
from kernelrl_core.recipe.explanations import synonyms
from kernelrl_core.recipe.field_docs import FieldDescription, describe_fields
from kernelrl_core.recipe.merge import merge_layers, override_layers
from kernelrl_core.recipe.problems import COMMAND_LINE
from kernelrl_core.recipe.structure import structure_recipe
from kernelrl_core.types import Finding


def one(name: str) -> Explanation:
    (found,) = explain(name, registry())
    return found


def test_a_key_has_type_range_default_effect_and_example() -> None:
    found = one("train.group_size")
    assert found.field is not None
    assert (found.what, found.field.type, found.field.default) == ("recipe key", "an integer of at least 1", "8")
    assert found.text
    assert found.example == "kernelrl run RECIPE train.group_size=8"
    assert found.source == "kernelrl_core.recipe.schema.learning:TrainSettings"


def test_a_mapping_has_its_nested_keys_and_a_valid_example() -> None:
    found = one("train.mismatch")
    assert found.field is not None
    assert [field.name for field in found.field.fields] == ["sequence_low", "sequence_high", "token_min"]
    assert found.example == "kernelrl run RECIPE 'train.mismatch={}'"
    assert one("train.mismatch.token_min").field == found.field.fields[2]


def test_a_mapping_without_a_text_is_explained_by_the_first_paragraph_of_its_class() -> None:
    (found,) = (one for one in explain("verify", registry()) if one.what == "recipe key")
    assert "more trials and profile `strict`. It changes no score." in found.text


def test_the_name_that_a_recipe_gives_to_a_component_may_be_part_of_a_key() -> None:
    assert explain("rewards.correct.weight", registry()) == explain("rewards.weight", registry())


def test_a_component_is_found_by_name_and_by_kind_and_name() -> None:
    assert one("policies torch") == one("policy torch")
    assert "width" in {option.name for option in one("policies torch").options}


def test_an_option_is_explained_for_every_component_that_has_it() -> None:
    found = {one.what for one in explain("policy.lora_rank", registry())}
    assert {"option of policy 'torch'", "option of policy 'tinker'"} <= found


def test_metrics_and_rules_are_found() -> None:
    assert one("kernel/correct_rate").text == "valid samples that ended as `correct`"
    assert one("finding/anything").name == "finding/*"
    assert one("compile_error").text == "The candidate does not build, or its module does not load."
    assert {found.what for found in explain("suspect", registry())} == {
        "recipe key",
        "severity of a finding",
        "verdict",
    }
    assert one("no_kernel").what.startswith("rule of checker 'source_rules', severity ")


def test_a_result_of_the_evaluation_is_found_with_and_without_its_prefix() -> None:
    assert one("fast_1.5") == one("eval/fast_1.5") == one("eval/fast_<p>")
    assert one("pass@8").name == "eval/pass@<k>"
    assert one("fast_2_as_measured").name == "eval/fast_<p>_as_measured"


def test_a_finding_that_no_checker_declares_is_found() -> None:
    assert one("checker_failed").what == "finding, severity note"
    assert one("late_write").what == "finding of evaluator 'local', severity hack"


def test_a_metric_has_formula_unit_good_range_and_source() -> None:
    found = one("train/kl").metric
    assert found is not None
    assert found.formula == "mean(log q - log p), k1 of KL(q, p)"
    assert (found.unit, found.source) == ("nats per token", "http://joschu.net/blog/kl-approx.html")
    assert found.good.startswith("near 0")


def test_a_result_of_a_level_or_before_the_first_step_has_the_definition_of_the_split() -> None:
    assert one("eval_start/pass@1") == one("eval/level_2/pass@1") == one("pass@1")


def test_the_last_part_of_a_name_finds_all_keys_and_options_that_end_with_it() -> None:
    assert [found.name for found in explain("mismatch", registry())] == ["train.mismatch"]
    found = {(one.name, one.what) for one in explain("max_characters", registry())}
    assert {
        ("feedback.max_characters", f"option of feedback formatter {use!r}") for use in ("structured", "raw")
    } <= found


def test_an_unknown_name_without_a_near_one_names_the_lists_of_names() -> None:
    with pytest.raises(LookupFailed) as refused:
        explain("zzzqq", registry())
    assert refused.value.message == "no key, component, metric, rule or problem 'zzzqq'"
    assert "kernelrl schema" in refused.value.fix


@pytest.mark.parametrize(("typo", "name"), [("train.klx", "train.kl")])
def test_an_unknown_name_gets_the_nearest_one(typo: str, name: str) -> None:
    with pytest.raises(
        LookupFailed, match=f"no key, component, metric, rule or problem '{typo}'; did you mean '{name}'"
    ):
        explain(typo, registry())


def test_types_and_defaults_are_written_as_in_a_recipe(plugins: Registry) -> None:
    fields = {field.name: field for field in describe_fields(plugins.config_class("policies", "tiny"))}
    described = {
        name: (fields[name].type, fields[name].default) for name in ("model", "mode", "pair", "checked", "names")
    }
    assert described == {
        "model": ("text or null", "null"),
        "mode": ("'a' or 'b' or 3", "a"),
        "pair": ("a list of 2 values (an integer, a finite number)", "[1, 2.0]"),
        "checked": ("an integer, >= 2", "5"),
        "names": ("a list, each text", "[]"),
    }
    assert fields["nested"].fields == (
        FieldDescription("size", "an integer of at least 1", "required", "A required size.", example="1"),
        FieldDescription("share", "a number from 0 to 1", "0.5", "A share.", example="0.5"),
    )


class WronglyDeclared(Checker):
    rules = ("sleep",)  # type: ignore[assignment]

    def check(self, candidate: object, task: object, evaluation: object) -> list[Finding]:
        return []


def test_a_checker_with_wrong_rules_does_not_break_other_names() -> None:
    component = Component("wrong", f"{__name__}:WronglyDeclared")
    plugin = PluginInfo("mine", "mine", "1", "ok", components={"checkers": (component,)})
    known = Registry((*registry().plugins, plugin))
    assert explain("train.steps", known)[0].what == "recipe key"


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("temperature", {"sampling.temperature", "eval.temperature"}),
        ("samples", {"eval.samples"}),
        ("split", {"train.split", "eval.split"}),
        ("KL", {"train.kl"}),
        ("num_rollouts", {"train.group_size"}),
        ("loss_fn", {"train.loss"}),
        ("clip_epsilon_high", {"train.clip_high"}),
        ("lr_scheduler_type", {"train.learning_rate_schedule"}),
    ],
)
def test_a_key_is_found_by_its_last_part_in_any_case_and_by_its_name_in_other_systems(
    name: str, keys: set[str]
) -> None:
    assert keys <= {found.name for found in explain(name, registry()) if found.what == "recipe key"}


def test_a_metric_is_found_by_its_last_part() -> None:
    assert {found.name for found in explain("cache_hit", registry())} == {"cache_hit"}
    assert "batch/num_groups" in {found.name for found in explain("num_groups", registry())}


def test_every_name_of_another_system_means_a_name_that_exists() -> None:
    for name, key in synonyms().items():
        assert explain(key, registry()), (name, key)


def test_a_block_lists_the_installed_components() -> None:
    assert "torch" in explain("policy", registry())[0].text
    assert "grpo" in one("advantage.use").text
    assert one("rewards").example.startswith("kernelrl run RECIPE rewards.NAME.use=")


EXAMPLES = [found for found in _keys(registry()) if found.example]


@pytest.mark.parametrize("found", EXAMPLES, ids=[found.name for found in EXAMPLES])
def test_the_example_of_a_key_has_the_type_of_the_key(found: Explanation) -> None:
    _, _, _, override = shlex.split(found.example)
    base = merge_recipe("quickstart", ["retriever={use: bm25, index: ./index}"])
    layers = override_layers([override.replace("NAME", "correct").replace("=PATH", "=./PATH")])
    structured = structure_recipe(merge_layers([base, *layers]), registry())
    mistakes = [problem for problem in structured.problems if problem.origin.source == COMMAND_LINE]
    assert [str(mistake) for mistake in mistakes if "required key" not in mistake.message] == []
