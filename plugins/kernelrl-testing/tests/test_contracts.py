"""The contract tests on the bundled components, and on broken ones: each test of a contract can fail."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from broken_components import EVERY, Broken

from kernelrl_core.api import Component, Requires
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.prompts.extraction import extract_file
from kernelrl_testing.contracts import CONTRACTS, ComponentContract, RewardContract, failures
from kernelrl_testing.contracts.hostile import HOSTILE_SOURCES

ROOT = Path(__file__).parents[3]
WORKED: Mapping[str, Any] = {
    "grpo": [([[3.0], [1.0]], [[1.0], [-1.0]]), ([[1.0, 3.0], [2.0]], [[-(1.5**0.5), 1.5**0.5], [0.0]])],
    "dr_grpo": [([[3.0], [1.0], [2.0]], [[1.0], [-1.0], [0.0]]), ([[1.0, 3.0], [2.0]], [[-1.0, 1.0], [0.0]])],
    "rloo": [([[3.0], [1.0], [2.0]], [[1.5], [-1.5], [0.0]])],
    "trloo": [([[3.0, 4.0], [1.0, 2.0]], [[2.0, 2.0], [-2.0, -2.0]])],
    "per_turn": [([[3.0, 4.0], [1.0, 2.0]], [[1.0, 1.0], [-1.0, -1.0]])],
}
"""Returns and advantages worked by hand, by component."""
BROKEN: list[Broken] = [
    broken for name in (*CONTRACTS, "imports") for broken in importlib.import_module(f"broken_components.{name}").BROKEN
]
SMALL = Component("small", "broken_components.backends:Good")
"""Backend of the broken evaluators."""
ELSEWHERE = re.compile(r"class Test\w+\((\w+)\):\n(?:    [^\n]*\n|\n)*?    component = \"([\w-]+)\"")
"""A contract class of a plugin's tests, and its component."""


def bundled() -> Iterator[tuple[str, str]]:
    """Kind and name of the bundled components that have no contract class in the tests of their plugin."""
    others = set(elsewhere())
    for kind in CONTRACTS:
        yield from ((kind, one.name) for one in registry().components(kind) if (kind, one.name) not in others)


def elsewhere() -> Iterator[tuple[str, str]]:
    kinds = {contract.__name__: kind for kind, contract in CONTRACTS.items()}
    for path in ROOT.glob("plugins/*/tests/*.py"):
        bases = dict(kinds)
        text = path.read_text(encoding="utf-8")
        for name, base in re.findall(r"^class (\w+)\((\w+)\):", text, re.MULTILINE):
            if base in bases:
                bases[name] = bases[base]
        yield from ((bases[base], component) for base, component in ELSEWHERE.findall(text) if base in bases)


@pytest.mark.parametrize(("kind", "name"), list(bundled()))
def test_bundled_components_fulfil_their_contract(kind: str, name: str, tmp_path: Path, evaluate: Any) -> None:
    attributes: dict[str, Any] = {"component": name}
    if kind == "advantages":
        attributes["worked"] = WORKED[name]
    if kind == "backends":
        attributes["evaluate"] = lambda self, request: evaluate(request)
    contract = type("Bundled", (CONTRACTS[kind],), attributes)
    assert failures(contract(), tmp_path) == {}


def test_each_kind_has_a_contract() -> None:
    assert set(CONTRACTS) == set(KINDS_BY_NAME)


def test_every_bundled_component_is_tested() -> None:
    everywhere = {*bundled(), *elsewhere()}
    installed = {(kind, component.name) for kind in CONTRACTS for component in registry().components(kind)}
    assert everywhere == installed


class TestCorrectness(RewardContract):
    """As a plugin's author writes it."""

    component = "correctness"


# --- broken components ----------------------------------------------------------------------------------------------


def names_of(contract: type[ComponentContract]) -> set[str]:
    return {name.removeprefix("test_") for name in dir(contract) if name.startswith("test_")}


def contract_of(broken: Broken) -> ComponentContract:
    def target(name: str) -> str:
        return "broken_components.{}:{}".format(*name.split(".")) if name else ""

    uses_kit = Requires(modules=("kernelrl_testing",))
    offered = Component(
        "broken", target(broken.target), config=target(broken.config), summary="Broken", requires=uses_kit
    )
    components = {broken.kind: (offered,), **({"backends": (SMALL,)} if broken.kind == "evaluators" else {})}
    plugins = Registry((*registry().plugins, PluginInfo("test", "test", "1", "ok", components=components)))
    named = {"component": "broken", "registry": lambda self: plugins}
    return type("Contract", (CONTRACTS[broken.kind],), {**named, **broken.attributes})()


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.id)
def test_the_contract_finds_a_broken_component(broken: Broken, tmp_path: Path) -> None:
    found = failures(contract_of(broken), tmp_path)
    own = names_of(CONTRACTS[broken.kind]) - names_of(ComponentContract)
    expected = broken.fails - {EVERY} | (own if EVERY in broken.fails else set())
    assert {name.removeprefix("test_") for name in found} == expected
    # A line per fault, with the fix.
    lines = [line for message in found.values() for line in message.splitlines()]
    assert [line for line in lines if not re.fullmatch(r".+; fix: .+", line)] == []


@pytest.mark.parametrize("kind", CONTRACTS)
def test_each_test_of_a_contract_fails_for_a_broken_component(kind: str) -> None:
    tests, of_all = names_of(CONTRACTS[kind]), names_of(ComponentContract)
    # The tests of all kinds fail for a component of any kind.
    failed = {name for broken in BROKEN for name in broken.fails if broken.kind == kind or name in of_all}
    assert tests - failed == set()


def test_a_component_that_nobody_offers_fails(tmp_path: Path) -> None:
    contract = type("Absent", (RewardContract,), {"component": "no_such_reward"})
    assert "no reward 'no_such_reward'" in failures(contract(), tmp_path)["test_is_found_and_loads"]


@pytest.mark.parametrize("name", HOSTILE_SOURCES)
def test_a_hostile_source_is_a_candidate(name: str) -> None:
    assert extract_file(HOSTILE_SOURCES[name], fences=(), backend="triton").candidate is not None
