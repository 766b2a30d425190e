"""A corpus and an embedder without torch. As a program: builds an index of them in the directory of its argument."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from kernelrl_plugin_raicl.corpora import Corpus
from kernelrl_plugin_raicl.index import dense
from kernelrl_plugin_raicl.index.build import build_index
from kernelrl_plugin_raicl.index.embedder import Prefixes, Vectors
from kernelrl_plugin_raicl.record import Record, Skipped
from kernelrl_testing.waiting import takes

OPERATORS = ("relu", "softmax", "matmul", "layer_norm", "conv2d", "cumsum", "gelu", "bmm", "argmax", "sigmoid")
PARTS = 4


def record(number: int, **changes: Any) -> Record:
    first, second = OPERATORS[number % 10], OPERATORS[number // 10 % 10]
    reference = f"import torch\n\nclass Model{number}:\n    def forward(self, x):\n        return torch.{second}("
    made = Record(
        id=f"fake/{number:03}",
        reference=reference + f"torch.{first}(x, {number}))\n",
        kernel=f"class ModelNew:\n    '{first} then {second}'\n",
        backend=("triton", "cuda")[number % 2],
        name=f"{first}_{second}",
        origin="fake@1",
        licence="MIT",
    )
    return attrs.evolve(made, **changes)


@attrs.frozen
class FakeCorpus(Corpus):
    rows: Sequence[Record | Skipped] = tuple(record(number) for number in range(80))
    revision: str = "1"

    def records(self) -> Iterator[Record | Skipped]:
        yield from self.rows

    def manifest(self) -> Mapping[str, Any]:
        return {"name": "fake", "revision": self.revision, "licence": "MIT", "source": "tests"}


class FakeEmbedder:
    """Embeds the words of a text by their hashes."""

    def __init__(self, dimension: int = 24, seconds: float = 0.0, salt: str = "") -> None:
        self.dimension, self._seconds, self._salt = dimension, seconds, salt
        self.name, self.prefixes, self.max_tokens = "fake", Prefixes("query: ", ""), 64
        self.calls = 0
        self.probe = self._embed("probe")

    def facts(self) -> dict[str, Any]:
        prefixes = {"query_prefix": self.prefixes.query, "document_prefix": self.prefixes.document}
        sizes = {"dimension": self.dimension, "max_tokens": self.max_tokens}
        return {"embedder": self.name, "embedder_library": "none", "revision": "", **sizes, **prefixes}

    def documents(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        takes(self._seconds)
        return np.stack([self._embed(text) for text in texts])

    def query(self, text: str) -> Vectors:
        return self._embed(text)

    def _embed(self, text: str) -> Vectors:
        vector = np.zeros(self.dimension, np.float32)
        for word in set(re.findall(r"[a-z]+", text.lower())):
            digest = zlib.crc32((self._salt + word).encode())
            vector[digest % self.dimension] += 1 + digest % 7
        return vector / max(float(np.linalg.norm(vector)), 1e-9)


Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds an index of a list of records, or of the default corpus; returns its directory."""

    def build(rows: Sequence[Record | Skipped] | None = None, name: str = "index", **arguments: Any) -> Path:
        corpus = FakeCorpus() if rows is None else FakeCorpus(rows)
        build_index([corpus], tmp_path / name, options={}, **arguments)
        return tmp_path / name

    return build


@pytest.fixture(scope="session")
def shared_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the default corpus with vectors, for tests that change nothing."""
    directory = tmp_path_factory.mktemp("shared") / "index"
    embedder: Any = FakeEmbedder()
    build_index([FakeCorpus()], directory, options={}, embedder=embedder)
    return directory


@pytest.fixture
def fakes() -> Any:
    """The names of this module, which tests cannot import."""
    return sys.modules[FakeCorpus.__module__]


if __name__ == "__main__":
    dense._SHARD = PARTS
    slow: Any = FakeEmbedder(seconds=0.2)
    build_index([FakeCorpus()], Path(sys.argv[1]), options={}, embedder=slow)
