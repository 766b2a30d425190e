"""Recipes are read strictly; all mistakes are reported together, with origin and nearest correct name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelrl_core.errors import ExitCode, LookupFailed
from kernelrl_core.planning.load import LoadedRecipe, bundled_recipes, find_recipe, load_recipe, recipe_from_mapping
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.recipe.schema import LastHistory, Recipe, SpeedupStop
from kernelrl_core.sources import yaml

MINIMAL = "tasks: {use: files}\nbackend: {use: triton}\npolicy: {use: tiny}\nrewards: {r: {use: bounded}}\n"


def read(plugins: Registry, text: str = "", *overrides: str) -> LoadedRecipe:
    folder = Path.cwd()
    (folder / "r.yaml").write_text(MINIMAL + text)
    return load_recipe("r.yaml", overrides, registry=plugins)


def problems(plugins: Registry, text: str = "", *overrides: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        read(plugins, text, *overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_absent_key_has_its_default(plugins: Registry) -> None:
    loaded = read(plugins)
    assert loaded.name == "r"
    assert loaded.recipe.train.group_size == 8
    assert loaded.recipe.policy.options.width == 8
    assert loaded.recipe.advantage.use == "grpo"
    assert loaded.sources == (Path.cwd() / "r.yaml",)


def test_all_mistakes_are_reported_with_file_and_line(plugins: Registry) -> None:
    text = """\
train:
  group_sise: 4
  steps: "3"
  substeps: 0
  shuffle: 1
trian: {}
learning_rate: 1e-5
episode: {stop: corect}
history: {keep: {lst: 3}}
sampling: {temperature: .inf}
returns: {gamma: 1.5}
loggers: {t: {use: nobody}}
"""
    keys = sorted(field.name for field in attrs.fields(Recipe))
    assert problems(plugins, text, "seed=yes", "nonsense=1") == [
        "r.yaml:6: train.group_sise: unknown key 'group_sise'; did you mean 'group_size'?",
        "r.yaml:7: train.steps: expected an integer of at least 0, got '3'",
        "r.yaml:8: train.substeps: expected an integer of at least 1, got 0",
        "r.yaml:9: train.shuffle: expected true or false, got 1",
        "r.yaml:10: trian: unknown key 'trian'; did you mean 'train'?",
        "r.yaml:11: learning_rate: unknown key 'learning_rate'; it belongs at 'train.learning_rate'",
        "r.yaml:12: episode.stop: expected 'never' or 'correct' or a mapping with 'speedup', got 'corect'; "
        "did you mean 'correct'?",
        "r.yaml:13: history.keep.lst: unknown key 'lst'; did you mean 'last'?",
        "r.yaml:13: history.keep: required key 'last' is missing",
        "r.yaml:14: sampling.temperature: expected a number of at least 0, got inf",
        "r.yaml:15: returns.gamma: expected a number from 0 to 1, got 1.5",
        "r.yaml:16: loggers.t.use: no logger 'nobody'; known: unreadable (broken plugins: broken; "
        "see 'kernelrl plugins list')",
        f"command line: nonsense: unknown key 'nonsense'; known: {', '.join(keys)}",
        "command line: seed: expected an integer of at least 0, got 'yes'",
    ]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("width: true", "policy.width: expected an integer of at least 1, got true"),
        ("width: 2.0", "policy.width: expected an integer of at least 1, got 2.0"),
        ("rate: '1'", "policy.rate: expected a finite number, got '1'"),
        ("rate: .nan", "policy.rate: expected a finite number, got nan"),
        ("fast: 'no'", "policy.fast: expected true or false, got 'no'"),
        ("fast: no", "policy.fast: expected true or false, got 'no'"),
        ("model: 3", "policy.model: expected text, got 3"),
        ("path: ''", "policy.path: expected a path, got ''"),
        ("mode: c", "policy.mode: expected 'a' or 'b' or 3, got 'c'"),
        ("mode: 3.0", "policy.mode: expected 'a' or 'b' or 3, got 3.0"),
        ("nested: atuo", "policy.nested: expected 'auto' or a mapping with 'size', 'share', got 'atuo'"),
        ("nested: {size: 0, share: 2}", "policy.nested.size: expected an integer of at least 1, got 0"),
        ("nested: {size: 1, share: 2}", "policy.nested.share: expected a number from 0 to 1, got 2"),
        ("nested: {shar: 1}", "policy.nested.shar: unknown key 'shar'; did you mean 'share'?"),
        ("nested: {}", "policy.nested: required key 'size' is missing"),
        ("names: a", "policy.names: expected a list, each text, got 'a'"),
        ("names: [a, 1]", "policy.names.1: expected text, got 1"),
        ("pair: [1]", "policy.pair: expected a list of 2 values"),
        ("table: {a: -1}", "policy.table.a: expected a number of at least 0, got -1"),
        ("table: {1: 1}", "policy.table.1: expected text, got 1"),
        ("checked: 1", "policy.checked: 'checked' must be >= 2: 1"),
        ("widht: 3", "policy.widht: unknown key 'widht'; did you mean 'width'?"),
        ("group_sizes: 3", "policy.group_sizes: unknown key 'group_sizes'; known: "),
        (
            "group_size: 3",
            "policy.group_size: unknown key 'group_size'; it belongs at 'train.group_size'; for the options of 'tiny': "
            "kernelrl plugins show demo",
        ),
        ("share: 3", "policy.share: unknown key 'share'; it belongs at 'policy.nested.share'"),
        ("<<: {}", "policy.<<: merge keys are not supported; use extends"),
    ],
)
def test_options_of_components_are_read_strictly(plugins: Registry, option: str, message: str) -> None:
    found = problems(plugins, "", f"policy={{use: tiny, {option}}}")
    assert any(problem.startswith(f"command line: {message}") for problem in found), found


@pytest.mark.parametrize("overrides", [(), ("policy.width=null",)])
def test_an_option_is_read_under_its_former_name_and_saved_under_its_own(
    plugins: Registry, overrides: tuple[str, ...]
) -> None:
    loaded = read(plugins, "", "policy.breadth=3", "policy.inner={size: 2}", *overrides)
    assert (loaded.recipe.policy.options.width, loaded.recipe.policy.options.nested.size) == (3, 2)
    assert loaded.resolved["policy"]["width"] == 3
    assert "breadth" not in loaded.resolved["policy"]
    assert recipe_from_mapping(loaded.resolved, registry=plugins, name="r").recipe == loaded.recipe


def test_null_unsets_a_former_name(plugins: Registry) -> None:
    former = "policy={use: tiny, breadth: 3}"
    assert read(plugins, "", former, "policy.breadth=null").recipe.policy.options.width == 8
    recipe = read(plugins, "", former, "policy.width=4", "policy.breadth=null").recipe
    assert recipe.policy.options.width == 4


def test_a_mistake_under_a_former_name_has_the_origin_of_that_name(plugins: Registry) -> None:
    (Path.cwd() / "old.yaml").write_text(
        "extends: r.yaml\npolicy:\n  fast: true\n  breadth: 0\n  inner:\n    size: 0\n"
    )
    read(plugins)
    with pytest.raises(RecipeError) as caught:
        load_recipe("old.yaml", registry=plugins)
    assert [str(problem) for problem in caught.value.problems] == [
        "old.yaml:4: policy.breadth: expected an integer of at least 1, got 0",
        "old.yaml:6: policy.inner.size: expected an integer of at least 1, got 0",
    ]


def test_a_former_name_beside_the_current_one_is_rejected(plugins: Registry) -> None:
    (Path.cwd() / "old.yaml").write_text("extends: r.yaml\npolicy:\n  width: 4\n  breadth: 4\n")
    read(plugins)
    with pytest.raises(RecipeError) as caught:
        load_recipe("old.yaml", registry=plugins)
    assert [str(problem) for problem in caught.value.problems] == [
        "old.yaml:4: policy.breadth: 'breadth' is the former name of 'width'; both are given; "
        "remove 'breadth', or write policy.breadth=null"
    ]


def test_valid_values_are_converted_to_their_types(plugins: Registry) -> None:
    options = read(
        plugins,
        "",
        "policy.rate=2",
        "policy.pair=[3, 4]",
        "policy.mode=3",
        "policy.nested={size: 2}",
        "policy.names=[x]",
        "policy.path=here/file",
        "episode.stop={speedup: 2}",
        "evaluation.timing=true",
        "history.keep={last: 2}",
    )
    policy = options.recipe.policy.options
    assert (policy.rate, type(policy.rate), policy.pair, policy.mode) == (2.0, float, (3, 4.0), 3)
    assert policy.nested.size == 2
    assert policy.path == Path.cwd() / "here/file"
    assert options.recipe.episode.stop == SpeedupStop(2.0)
    assert options.recipe.history.keep == LastHistory(2)


def test_null_removes_an_entry_or_restores_a_default_or_is_a_value_of_its_type(plugins: Registry) -> None:
    text = "train: {keep_checkpoints: null, group_size: null}\nrewards2: null\n"
    found = problems(plugins, text)
    assert len(found) == 1
    assert "rewards2" in found[0]
    recipe = read(
        plugins,
        "train: {keep_checkpoints: null, group_size: null}\nprompt: null\n",
        "rewards.x={use: bounded}",
        "rewards.r=null",
    ).recipe
    assert list(recipe.rewards) == ["x"]
    assert recipe.train.keep_checkpoints is None
    assert recipe.train.group_size == 8
    assert recipe.prompt.template == "kernelrl"


def test_a_required_key_must_be_present(plugins: Registry) -> None:
    assert sorted(problems(plugins, "", "policy=null", "tasks.use=null")) == [
        "command line: tasks: required key 'use' is missing; known: elsewhere, failing, files",
        "r.yaml:1: required key 'policy' is missing",
    ]


def test_core_keys_of_a_block_are_read_beside_its_options(plugins: Registry) -> None:
    recipe = read(plugins, "retriever: {use: bm25, k: 5, turns: all, width: 3}\n", "rewards.r.weight=2").recipe
    assert recipe.retriever is not None
    assert (recipe.retriever.k, recipe.retriever.turns, recipe.retriever.options.width) == (5, "all", 3)
    assert recipe.rewards["r"].weight == 2.0
    assert problems(plugins, "retriever: {use: bm25, k: 0}\n") == [
        "r.yaml:5: retriever.k: expected an integer of at least 1, got 0"
    ]


def test_a_broken_plugin_is_reported_with_the_other_mistakes(plugins: Registry) -> None:
    found = problems(plugins, "", "policy={use: 'broken:x'}", "seed=-1")
    assert len(found) == 2
    assert "ImportError: no libfoo; kernelrl plugins show broken" in found[0]


def test_exit_code_3_is_for_missing_plugins_only(plugins: Registry) -> None:
    for override, code in (("policy={use: tinker}", ExitCode.MISSING), ("policy={use: tin}", ExitCode.USAGE)):
        with pytest.raises(RecipeError) as caught:
            read(plugins, "", override)
        assert caught.value.exit_code == code
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_one_command_installs_all_missing_plugins(plugins: Registry) -> None:
    missing = ("policy={use: tinker}", "feedback={use: raw}")
    with pytest.raises(RecipeError) as caught:
        read(plugins, "", *missing)
    assert caught.value.fix == "pip install kernelrl-plugin-feedback kernelrl-plugin-tinker"
    with pytest.raises(RecipeError) as caught:
        read(plugins, "", missing[0])
    assert caught.value.fix == ""


def test_an_import_error_of_options_names_the_plugin(plugins: Registry) -> None:
    (found,) = problems(plugins, "loggers: {t: {use: unreadable}}\n")
    assert "loggers.t.use: plugin demo (dist-demo 1): cannot import the options of logger 'unreadable'" in found


def test_a_name_offered_twice_must_be_qualified(plugins: Registry) -> None:
    (found,) = problems(plugins, "", "rewards.x={use: twice, weight: 0}")
    assert "write one of: demo:twice, other:twice" in found


def test_an_unknown_recipe_name_gets_the_nearest_name() -> None:
    with pytest.raises(LookupFailed, match="did you mean 'quickstart'"):
        find_recipe("quikstart")


def test_an_unknown_base_recipe_gets_the_nearest_name(plugins: Registry, tmp_path: Path) -> None:
    (tmp_path / "common.yaml").write_text("seed: 1\n")
    for wrong, right in (("quikstart", "quickstart"), ("comon", "common"), ("comon.yaml", "common.yaml")):
        recipe = tmp_path / "mine.yaml"
        recipe.write_text(f"seed: 1\nextends: {wrong}\n")
        with pytest.raises(RecipeError, match=rf"mine.yaml:2: extends: .*did you mean '{right}'"):
            load_recipe(str(recipe), registry=plugins)


def test_the_path_of_a_bundled_recipe_that_is_no_file_names_the_recipe() -> None:
    with pytest.raises(LookupFailed, match=r"no file 'recipes/smoke.yaml' here; the bundled recipe 'smoke'") as found:
        find_recipe("recipes/smoke.yaml")
    assert found.value.fix == "write smoke in place of the path"


def test_a_name_is_resolved_as_path_then_local_recipe_then_bundled_recipe() -> None:
    assert find_recipe("smoke") == find_recipe("smoke.yaml") == bundled_recipes()["smoke"]
    local = Path("recipes/smoke.yaml")
    local.parent.mkdir()
    local.write_text("")
    assert find_recipe("smoke") == local.absolute()
    Path("smoke").write_text("")
    assert find_recipe("smoke") == Path("smoke").absolute()


@pytest.mark.parametrize("name", sorted(bundled_recipes()))
def test_every_bundled_recipe_is_valid_and_its_resolved_form_loads_to_an_equal_recipe(name: str) -> None:
    loaded = load_recipe(name, registry=registry())
    again = yaml.parse_value(yaml.dump(loaded.resolved))
    assert recipe_from_mapping(again, registry=registry(), name=name).recipe == loaded.recipe


text = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=8)
positive = st.integers(1, 10**6)
share = st.floats(0, 1)
options = st.fixed_dictionaries(
    {},
    optional={
        "model": st.none() | text,
        "width": st.integers(1, 1000),
        "rate": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
        "fast": st.booleans(),
        "path": text.filter(lambda value: value and "~" not in value),
        "mode": st.sampled_from(["a", "b", 3]),
        "nested": st.none() | st.just("auto") | st.fixed_dictionaries({"size": positive}, optional={"share": share}),
        "names": st.lists(text, max_size=3),
        "table": st.dictionaries(text, st.floats(0, 9), max_size=3),
    },
)
stops = st.lists(text.filter(bool), max_size=2)
recipes = st.fixed_dictionaries(
    {
        "tasks": options.map(lambda values: {"use": "files", **values}),
        "backend": st.just({"use": "triton"}),
        "policy": options.map(lambda values: {"use": "demo:tiny", **values}),
        "rewards": st.dictionaries(text, st.just({"use": "bounded"}), min_size=1, max_size=3),
    },
    optional={
        "seed": st.integers(0, 10**12),
        "sampling": st.fixed_dictionaries({}, optional={"temperature": share, "stop": stops}),
        "returns": st.fixed_dictionaries({}, optional={"gamma": share, "aggregate": st.sampled_from(["sum", "max"])}),
        "history": st.fixed_dictionaries({}, optional={"keep": st.just("all") | st.just({"best": 2})}),
        "retriever": st.none() | st.just({"use": "bm25", "k": 2}),
        "evaluation": st.fixed_dictionaries({}, optional={"excessive_speedup": st.none() | st.floats(1, 99)}),
    },
)
hypothesis_settings = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)


@hypothesis_settings
@given(recipes)
def test_any_resolved_recipe_loads_to_an_equal_recipe_also_from_yaml(plugins: Registry, data: dict[str, Any]) -> None:
    first = recipe_from_mapping(data, registry=plugins, name="any")
    again = recipe_from_mapping(yaml.parse_value(yaml.dump(first.resolved)), registry=plugins, name="any")
    assert again.recipe == first.recipe
    assert again.resolved == first.resolved


SECTIONS = {
    f.name: f.default for f in attrs.fields(Recipe) if attrs.has(type(f.default)) and f.name not in ("evaluator",)
}
KEYS = sorted(
    f"{section}.{field.name}"
    for section, default in SECTIONS.items()
    if type(default).__name__ != "Use"
    for field in attrs.fields(type(default))
)


@hypothesis_settings
@given(st.sampled_from(KEYS), st.data())
def test_a_misspelt_key_is_always_reported(plugins: Registry, key: str, data: st.DataObject) -> None:
    section, _, name = key.partition(".")
    position = data.draw(st.integers(0, len(name)))
    wrong = name[:position] + data.draw(st.sampled_from("xqz_")) + name[position:]
    if f"{section}.{wrong}" in KEYS:
        return
    base = yaml.parse_value(MINIMAL)
    with pytest.raises(RecipeError) as caught:
        recipe_from_mapping({**base, section: {wrong: 1}}, registry=plugins, name="any")
    assert [problem.path for problem in caught.value.problems] == [f"{section}.{wrong}"]
    assert name in caught.value.problems[0].hint


@hypothesis_settings
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | text, lambda i: st.lists(i) | st.dictionaries(text, i)
    ),
    st.sampled_from([f.name for f in attrs.fields(Recipe)]),
)
def test_any_value_is_accepted_or_rejected_with_problems(plugins: Registry, junk: Any, key: str) -> None:
    base = {**yaml.parse_value(MINIMAL), key: junk}
    try:
        recipe_from_mapping(base, registry=plugins, name="any")
    except RecipeError as error:
        assert all(problem.message for problem in error.problems)  # noqa: PT017


def test_a_key_of_a_bundled_recipe_without_effect_is_no_mistake_of_the_user() -> None:
    loaded = load_recipe("quickstart_multi_turn", ["episode.turns=1", "returns.gamma=0.5"], registry=registry())
    assert [warning.path for warning in loaded.own_warnings()] == ["returns.gamma"]
    assert len(loaded.warnings) > 1
