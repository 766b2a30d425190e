"""docs/migration.md has every key that is converted, with its place, and only metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelrl_adapters.conversion import SYSTEMS, Configuration, convert
from kernelrl_adapters.conversion.keys import DATASET, KEYS
from kernelrl_core.api.components import Registry
from kernelrl_core.api.recipes import Origin
from kernelrl_testing.core import explain

PAGE = (Path(__file__).parents[3] / "docs/migration.md").read_text(encoding="utf-8")
ON: dict[str, Any] = {
    "loss_fn": "ppo",
    "clip_epsilon_low": 0.2,
    "multiturn.enabled": True,
    "max_tokens_extended": 30000,
    "dataset_builder.measure_performance": True,
    "dataset_builder.prompt_include_hardware": True,
}
"""Keys that give others an effect."""
OLDER = ON | {"multiturn.enabled": False, "mode": "multi_turn", "dataset_builder.early_stop_on_correct": True}
LOCAL = {"dataset_builder.backend": "hip", "dataset_builder.evaluator_backend": "local"}
STOP = ON | {"multiturn.early_stop_on_correct": True}
RETRIEVAL = OLDER | {"dataset_builder.prompt_option": "raicl"}
SAMPLES = {
    "mode": "multi_turn",
    "multiturn.aggregation": "max",
    "load_checkpoint_path": "tinker://a",
    "dataset_builder.dataset_src": "local",
    "dataset_builder.prompt_option": "few_shot",
    "dataset_builder.reward_preset": "stage1",
}
BY_KIND = {
    "text": "x",
    "int": 3,
    "number": 0.5,
    "bool": True,
    "texts": ["pytorch_wrap"],
    "ints": [2],
    "levels": {1: [3]},
}


def rows(head: str) -> dict[str, str]:
    """First and second column of the table below a heading."""
    section = PAGE.split(f"\n{head}\n", 1)[1].split("\n#", 1)[0]
    return dict(re.findall(r"^\| (`\S+`) \| (.*?) \|", section, flags=re.MULTILINE))


def documented() -> dict[str, str]:
    builder = {f"`{DATASET}{key[1:]}": place for key, place in rows("### `dataset_builder`").items()}
    found = rows("### Top level") | rows("### `multiturn`") | builder
    return {key.strip("`"): place.strip("`") for key, place in found.items()}


def places(key: str) -> set[str]:
    """Paths of the recipe that a key decides in some configuration."""
    found: set[str] = set()
    for others in ({}, ON, OLDER, ON | LOCAL, STOP, RETRIEVAL):
        for system in SYSTEMS:
            values = {**others, key: SAMPLES.get(key, BY_KIND[KEYS[key].kind])}
            origins = dict.fromkeys(values, Origin("x", 1))
            found.update(convert(Configuration(Path("x"), system, values, {}, origins, {})).placed.get(key, ()))
    return found


def test_every_key_is_documented() -> None:
    assert documented().keys() == KEYS.keys()


@pytest.mark.parametrize("key", KEYS)
def test_the_documented_place_is_that_of_the_conversion(key: str) -> None:
    place, found = documented()[key], places(key)
    assert place in found if found else place == "–"


def test_metrics_of_this_system_exist() -> None:
    table = PAGE.split("## Metrics", 1)[1].split("## Files", 1)[0]
    cells = re.findall(r"^\|[^|]*\|([^|]*)\|$", table, flags=re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`([\w@<>*]+/[\w@<>*/]+)`", cell)}
    assert len(names) > 12
    for name in names:
        assert "metric" in {one.what for one in explain(name, Registry(()))}
