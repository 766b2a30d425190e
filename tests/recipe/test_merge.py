"""Layers of a recipe (base recipes, the recipe, overrides), with the origin of every value."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.planning.load import _find_base
from kernelrl_core.recipe.merge import Merged, merge_files, merge_layers, override_layer, override_layers
from kernelrl_core.recipe.problems import RecipeError


def merged(folder: Path, *overrides: str, **files: str) -> Merged:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    layers = [merge_files(folder / "main.yaml", _find_base), *(override_layer(text) for text in overrides)]
    return merge_layers(layers)


def test_maps_merge_deeply_and_lists_are_replaced(tmp_path: Path) -> None:
    found = merged(
        tmp_path,
        base="train: {steps: 5, group_size: 4}\nforbid: [a, b]\n",
        main="extends: base\ntrain: {steps: 7}\nforbid: [c]\n",
    )
    assert found.data == {"train": {"steps": 7, "group_size": 4}, "forbid": ["c"]}


def test_later_base_recipes_override_earlier_ones(tmp_path: Path) -> None:
    found = merged(tmp_path, one="seed: 1\n", two="seed: 2\n", main="extends: [one.yaml, two]\n")
    assert found.data == {"seed": 2}


def test_a_path_is_relative_to_the_including_file(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/base.yaml").write_text("extends: ../root.yaml\n")
    assert merged(tmp_path, root="seed: 3\n", main="extends: inner/base.yaml\n").data == {"seed": 3}


def test_a_name_that_is_not_beside_the_file_means_a_bundled_recipe(tmp_path: Path) -> None:
    assert merged(tmp_path, main="extends: quickstart\nseed: 9\n").data["policy"]["use"] == "torch"


def test_in_a_file_with_the_name_of_a_bundled_recipe_the_name_means_the_bundled_one(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text("extends: quickstart\nseed: 9\n")
    found = merge_files(tmp_path / "quickstart.yaml", _find_base)
    assert (found.data["policy"]["use"], found.data["seed"]) == ("torch", 9)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"quickstart": "seed: 1\nextends: a\n", "a": "extends: quickstart\n", "main": "extends: a\n"},
            r"a cycle: a.yaml",
        ),
        ({"main": "extends: main.yaml\n"}, r"main.yaml:1: extends: forms a cycle: main.yaml -> main.yaml; remove"),
        ({"main": "seed: 1\nextends: a\n", "a": "extends: main\n"}, r"a.yaml:1: extends: forms a cycle"),
        ({"main": "extends: nowhere\n"}, r"main.yaml:1: extends: no recipe 'nowhere'"),
        ({"main": "extends: {a: b}\n"}, r"expected the name or path of a recipe.*got a mapping"),
        ({"main": "extends: a\n", "a": "x: [\n"}, r"a.yaml:2: not YAML"),
        ({"main": "- a\n"}, r"is a list, not a mapping"),
    ],
)
def test_an_unusable_base_recipe_is_reported_with_file_and_line(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        merged(tmp_path, **files)


def test_a_cycle_through_another_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/x.yaml").write_text("extends: ../main.yaml\n")
    with pytest.raises(RecipeError, match=r"cycle: main.yaml -> x.yaml -> main.yaml"):
        merged(tmp_path, main="extends: inner/x.yaml\n")


def test_a_base_recipe_may_be_extended_by_two_others(tmp_path: Path) -> None:
    found = merged(tmp_path, top="seed: 4\n", a="extends: top\n", b="extends: top\n", main="extends: [a, b]\n")
    assert found.data == {"seed": 4}
    assert [path.name for path in found.sources] == ["top.yaml", "a.yaml", "b.yaml", "main.yaml"]


def test_another_component_drops_the_old_options_and_keeps_core_keys(tmp_path: Path) -> None:
    found = merged(
        tmp_path,
        base="policy: {use: torch, width: 8}\nrewards: {r: {use: length, weight: 2, full: 9}}\n",
        main="extends: base\npolicy: {use: scripted}\nrewards: {r: {use: thinking}}\n",
    )
    assert found.data == {"policy": {"use": "scripted"}, "rewards": {"r": {"use": "thinking", "weight": 2}}}
    assert ("policy", "width") not in found.origins


def test_the_same_component_keeps_its_options(tmp_path: Path) -> None:
    found = merged(
        tmp_path, base="policy: {use: torch, width: 8}\n", main="extends: base\npolicy: {use: torch, layers: 2}\n"
    )
    assert found.data["policy"] == {"use": "torch", "width": 8, "layers": 2}


def test_writing_the_default_component_keeps_its_options(tmp_path: Path) -> None:
    found = merged(tmp_path, "evaluator.use=modal", main="evaluator: {use: local, workers: 2}\n")
    assert found.data["evaluator"] == {"use": "modal"}
    found = merged(tmp_path, "evaluator.use=local", main="evaluator: {workers: 2}\n")
    assert found.data["evaluator"] == {"use": "local", "workers": 2}


@pytest.mark.parametrize(
    ("below", "above", "data"),
    [
        ("history: {keep: {last: 3}}", "history.keep={best: 2}", {"history": {"keep": {"best": 2}}}),
        ("history: {keep: {last: 3}}", "history.keep.best=2", {"history": {"keep": {"best": 2}}}),
        ("history: {keep: {last: 3}}", "history.keep.last=2", {"history": {"keep": {"last": 2}}}),
        (
            "tasks: {use: kernelbench, holdout: {fraction: 0.1, seed: 3}}",
            "tasks.holdout={level1: [1, 2]}",
            {"tasks": {"use": "kernelbench", "holdout": {"level1": [1, 2]}}},
        ),
        (
            "tasks: {use: kernelbench, holdout: {fraction: 0.1, seed: 3}}",
            "tasks.holdout={fraction: 0.2}",
            {"tasks": {"use": "kernelbench", "holdout": {"fraction": 0.2, "seed": 3}}},
        ),
        # A name that no alternative has is a mistake of the later layer, and not a choice.
        ("history: {keep: {last: 3}}", "history.keep={lst: 2}", {"history": {"keep": {"last": 3, "lst": 2}}}),
    ],
)
def test_a_map_that_names_another_alternative_replaces_the_inherited_one(
    tmp_path: Path, below: str, above: str, data: dict[str, object]
) -> None:
    found = merged(tmp_path, above, base=f"{below}\n", main="extends: base\n")
    assert found.data == data
    key = ("history", "keep", "last") if "history" in data else ("tasks", "holdout", "seed")
    assert (key in found.origins) == (key[-1] in next(iter(data.values()))[key[1]])  # type: ignore[index]


def test_the_origin_of_a_value_is_its_last_assignment(tmp_path: Path) -> None:
    found = merged(
        tmp_path,
        "train.steps=9",
        base="seed: 1\ntrain:\n  steps: 5\n  epochs: null\n",
        main="extends: base\ntrain: {group_size: 4}\n",
    )
    assert str(found.origin(("seed",))).endswith("base.yaml:1")
    assert str(found.origin(("train", "group_size"))).endswith("main.yaml:2")
    assert str(found.origin(("train", "steps"))) == "command line"
    assert str(found.origin(("train", "epochs", "deeper"))).endswith("base.yaml:4")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a.b=1e-5", {"a": {"b": 1e-5}}),
        ("a=b=c", {"a": "b=c"}),
        ("a=null", {"a": None}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a={use: torch}", {"a": {"use": "torch"}}),
        ("a.1=no", {"a": {1: "no"}}),
    ],
)
def test_an_override_is_split_at_the_first_equals_sign_and_its_value_is_yaml(text: str, data: object) -> None:
    assert override_layer(text).data == data


@pytest.mark.parametrize(
    "text", ["train.steps", "train.steps=", "train.steps= ", "=3", "a..b=1", "extends=x", "a=[1", "a=b: c: d"]
)
def test_an_unusable_override_is_rejected(text: str) -> None:
    with pytest.raises(RecipeError, match="command line"):
        override_layer(text)


def test_a_key_given_twice_with_different_values_is_rejected() -> None:
    with pytest.raises(RecipeError) as raised:
        override_layers(["seed=1", "train.steps=3", "seed=2", "train.steps=3"])
    assert str(raised.value) == "command line: seed: is given twice; remove 'seed=1' or 'seed=2'"


def test_an_override_may_reach_below_a_scalar(tmp_path: Path) -> None:
    assert merged(tmp_path, "episode.stop.speedup=2", main="episode: {stop: correct}\n").data == {
        "episode": {"stop": {"speedup": 2}}
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"a: " + b"x" * (1 << 20), "too large for a recipe"),
        (b"", "main.yaml:1: is empty; start with 'extends: quickstart'"),
        (b"# nothing but words\n", "main.yaml:1: is empty"),
    ],
)
def test_a_file_that_is_not_a_recipe_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "main.yaml").write_bytes(content)
    with pytest.raises(RecipeError, match=message):
        merge_files(tmp_path / "main.yaml", _find_base)


def test_a_component_keeps_its_options_under_its_qualified_name(tmp_path: Path) -> None:
    text = "rewards: {r: {use: speedup, limit: 2.0}}\n"
    assert merged(tmp_path, "rewards.r.use=rewards:speedup", main=text).data == {
        "rewards": {"r": {"use": "rewards:speedup", "limit": 2.0}}
    }


def test_a_block_without_use_keeps_its_options_if_the_default_component_is_named(tmp_path: Path) -> None:
    found = merged(tmp_path, "evaluator.use=local", main="evaluator: {workers: 2}\n")
    assert found.data == {"evaluator": {"workers": 2, "use": "local"}}
