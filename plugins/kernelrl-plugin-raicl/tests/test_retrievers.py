"""Search of an index: exact filtering, order, ties, options, learning."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.retrievers import Example, Task
from kernelrl_plugin_raicl.config import Bm25Config, FaissConfig, HybridConfig, ValueConfig
from kernelrl_plugin_raicl.retrievers import Bm25, Faiss, Hybrid, Value
from kernelrl_testing.contracts import RetrieverContract
from kernelrl_testing.values import make_task

CLASSES: dict[str, Any] = {
    "bm25": (Bm25, Bm25Config),
    "faiss": (Faiss, FaissConfig),
    "hybrid": (Hybrid, HybridConfig),
    "value": (Value, ValueConfig),
}
QUERY = make_task("t", "import torch\nclass Model:\n    def forward(self, y):\n        return torch.softmax(y, 1)\n")


def make(name: str, index: Path, fakes: Any, **options: Any) -> Any:
    cls, config = CLASSES[name]
    embedder = {} if name == "bm25" else {"embedder": fakes.FakeEmbedder()}
    return cls(config(index=index, **options), **embedder)


def found(retriever: Any, task: Task = QUERY, backend: str = "triton", k: int | None = None) -> list[Example]:
    return list(itertools.islice(retriever.search(task, backend), k))


def rows(fakes: Any, **changes: Any) -> list[Any]:
    return [fakes.record(number, **changes) for number in range(80)]


@pytest.fixture
def index(build: Any, fakes: Any) -> Path:
    directory: Path = build(embedder=fakes.FakeEmbedder())
    return directory


@pytest.mark.parametrize("name", CLASSES)
def test_search_yields_every_kernel_of_the_backend_once(index: Path, fakes: Any, name: str) -> None:
    for backend, first in (("triton", 0), ("cuda", 1)):
        ids = [example.id for example in found(make(name, index, fakes), backend=backend)]
        assert sorted(ids) == [f"fake/{number:03}" for number in range(first, 80, 2)]


@pytest.mark.parametrize("name", CLASSES)
def test_rare_backend_is_found_among_many_others(build: Any, fakes: Any, name: str) -> None:
    hip = [fakes.record(number, id=f"rare/{number}", backend="hip") for number in (3, 44)]
    directory = build([*rows(fakes, backend="triton"), *hip], embedder=fakes.FakeEmbedder())
    assert len(found(make(name, directory, fakes), backend="hip", k=3)) == 2


@pytest.mark.parametrize("name", CLASSES)
def test_unknown_backend_is_an_error(index: Path, fakes: Any, name: str) -> None:
    with pytest.raises(UsageError, match="no kernels for backend 'hip'; it has: cuda 40, triton 40"):
        found(make(name, index, fakes), backend="hip")


@pytest.mark.parametrize("name", CLASSES)
def test_best_examples_have_the_operator_of_the_task(index: Path, fakes: Any, name: str) -> None:
    best = found(make(name, index, fakes), backend="cuda", k=3)
    assert all("softmax" in example.reference for example in best)
    assert best[0].similarity is not None
    assert 0 < best[-1].similarity <= best[0].similarity <= 1.001  # type: ignore[operator]


@pytest.mark.parametrize("name", CLASSES)
def test_order_depends_on_ids_only_where_similarities_tie(build: Any, fakes: Any, name: str) -> None:
    same = [fakes.record(1, id=f"tie/{number}", kernel=f"class ModelNew: {number}") for number in range(9)]
    others = rows(fakes)
    orders = []
    for seed in (0, 1):
        random.Random(seed).shuffle(same)
        random.Random(seed).shuffle(others)
        directory = build([*same, *others], name=f"index{seed}", embedder=fakes.FakeEmbedder())
        retriever = make(name, directory, fakes)
        orders.append([example.id for example in found(retriever, backend="cuda")])
        assert orders[-1] == [example.id for example in found(retriever, backend="cuda")]
    assert orders[0] == orders[1]
    tied = [id_ for id_ in orders[0] if id_.startswith("tie/")]
    assert tied == sorted(tied)


def test_hybrid_similarity_is_the_weighted_mean(index: Path, fakes: Any) -> None:
    def by_id(name: str, **options: Any) -> dict[str, float]:
        return {example.id: example.similarity for example in found(make(name, index, fakes, **options))}

    lexical, dense, both = by_id("bm25"), by_id("faiss"), by_id("hybrid", lexical_weight=0.25)
    assert both == pytest.approx({id_: 0.25 * lexical[id_] + 0.75 * dense[id_] for id_ in both}, abs=1e-6)


def test_kernels_of_one_reference_follow_other_references(build: Any, fakes: Any) -> None:
    same = [fakes.record(1, id=f"same/{number}", kernel=f"class ModelNew: {number}") for number in range(5)]
    order = found(make("bm25", build([*same, *rows(fakes)[2:]]), fakes), backend="cuda")
    assert [example.id.startswith("same/") for example in order[:-4]].count(True) == 1
    assert [example.id for example in order[-4:]] == ["same/1", "same/2", "same/3", "same/4"]


NEAREST = make_task("n", "class Model:\n    def forward(self, y):\n        return torch.relu(torch.softmax(y, 9))\n")
"""Nearest to `record(1)`."""


def kernels(fakes: Any) -> list[Any]:
    speedups = {"slow": 0.5, "middle": 1.0, "fast": 4.0, "unknown": None}
    return [fakes.record(1, id=id_, kernel=f"class ModelNew: '{id_}'", speedup=s) for id_, s in speedups.items()]


def test_speedup_decides_among_similar_kernels(build: Any, fakes: Any) -> None:
    directory = build([*kernels(fakes), *rows(fakes)[2:]])
    best = found(make("bm25", directory, fakes, speedup_weight=0.5), NEAREST, "cuda")[0]
    assert (best.id, best.speedup) == ("fast", 4.0)


def test_contrast_shows_the_slowest_and_the_fastest(build: Any, fakes: Any) -> None:
    directory = build([*kernels(fakes), *rows(fakes)[2:]])
    order = found(make("bm25", directory, fakes, contrast=True), NEAREST, "cuda")
    assert [example.id for example in order[:2]] == ["slow", "fast"]
    assert len({example.id for example in order}) == len(order) == 3 + 40


def test_diversity_prefers_other_operators(index: Path, fakes: Any) -> None:
    plain, diverse = (found(make("bm25", index, fakes, diversity=weight), backend="cuda", k=4) for weight in (0.0, 0.7))
    assert plain[0] == diverse[0]
    assert len({example.name for example in diverse}) > len({example.name for example in plain}) - 1
    assert [example.id for example in plain] != [example.id for example in diverse]


def test_long_examples_are_never_shown_in_part(build: Any, fakes: Any) -> None:
    long = fakes.record(1, id="long", kernel="class ModelNew: '" + "softmax " * 1000 + "'")
    directory = build([long, *rows(fakes)])
    whole = {example.id: example for example in found(make("bm25", directory, fakes, max_tokens=None), NEAREST, "cuda")}
    assert whole["long"].kernel == long.kernel
    short = found(make("bm25", directory, fakes, max_tokens=2000), NEAREST, "cuda")
    assert "long" not in {example.id for example in short}


def test_unusual_queries_have_an_order(index: Path, fakes: Any) -> None:
    for name in CLASSES:
        for reference in ("", "\0", "é" * 50, "zzzz qqqq", "class Model: ..."):
            assert len(found(make(name, index, fakes), make_task("odd", reference))) == 40


def test_identity_is_the_hash_of_the_manifest(build: Any, fakes: Any) -> None:
    one, other = build(name="one"), build(rows(fakes)[:9], name="other")
    assert make("bm25", one, fakes).identity() == make("bm25", one, fakes).identity()
    assert make("bm25", one, fakes).identity() != make("bm25", other, fakes).identity()
    assert len(make("bm25", one, fakes).identity()["manifest_sha256"]) == 64


def test_missing_index_is_a_prerequisite() -> None:
    requires = FaissConfig(index=Path("no_index")).requires()
    assert requires.files == ("no_index",)
    assert requires.fix.startswith("kernelrl index build")
    assert "--embedder" in requires.fix
    assert "--embedder" not in Bm25Config(index=Path("no_index")).requires().fix
    Bm25(Bm25Config(index=Path("no_index")))  # opens nothing


def credit(example: str, value: float, task: str = "t") -> dict[str, Any]:
    return {"sample": "0.0.0.0", "return": value, "advantage": 0.0, "examples": [example], "task_id": task}


def test_value_prefers_examples_with_returns_above_those_before(index: Path, fakes: Any) -> None:
    retriever = make("value", index, fakes, exploration=0.0, value_weight=4.0)
    before = [example.id for example in found(retriever)]
    good, bad = before[5], before[0]
    retriever.observe([credit(bad, 0.0) for _ in range(8)])
    assert [example.id for example in found(retriever)] == before  # nothing to compare with yet
    retriever.observe([credit(good, 1.0) for _ in range(8)])
    retriever.observe([credit(bad, 0.0) for _ in range(8)])
    after = [example.id for example in found(retriever)]
    assert after[0] == good
    assert after.index(bad) > 0
    assert sorted(after) == sorted(before)


def test_value_explores_examples_that_were_not_shown(index: Path, fakes: Any) -> None:
    retriever = make("value", index, fakes, exploration=2.0, value_weight=1.0)
    first = found(retriever, k=1)[0].id
    for _ in range(3):
        retriever.observe([credit(first, 0.5) for _ in range(8)])
    assert found(retriever, k=1)[0].id != first


def test_value_resumes_from_its_state(index: Path, fakes: Any) -> None:
    one, other = (make("value", index, fakes) for _ in range(2))
    steps = [[credit(f"fake/{(7 * i) % 80:03}", i / 3, f"t{i % 3}") for i in range(s, s + 9)] for s in range(4)]
    for step in steps[:2]:
        one.observe(step)
    other.restore(json.loads(json.dumps(one.state())))
    for retriever in (one, other):
        for step in steps[2:]:
            retriever.observe(step)
    assert one.state() == other.state()
    assert found(one) == found(other)


def test_value_ignores_masked_samples_and_unknown_examples(index: Path, fakes: Any) -> None:
    retriever = make("value", index, fakes)
    before = found(retriever)
    retriever.observe([{"sample": "0.0.0.0", "return": None, "advantage": None}, credit("gone", 1.0)])
    retriever.observe([credit("gone", 2.0)])
    assert {example.id for example in found(retriever)} == {example.id for example in before}


class TestBm25(RetrieverContract):
    component = "bm25"

    @pytest.fixture(autouse=True)
    def _index(self, shared_index: Path) -> None:
        type(self).options = {"index": str(shared_index)}


class TestValue(TestBm25):
    component = "value"


class TestFaiss(TestBm25):
    component = "faiss"

    @pytest.fixture(autouse=True)
    def _embedder(self, fakes: Any) -> None:
        self.fakes = fakes

    def make(self) -> Any:
        """With an embedder of the tests: a real one needs torch and a model."""
        return make(self.component, Path(self.options["index"]), self.fakes)


class TestHybrid(TestFaiss):
    component = "hybrid"
