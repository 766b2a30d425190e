"""Picks published CUDA solutions out of a local clone, and adds kernels of our own: the input of `throughput.py`.

    python benchmarks/corpora/published_cuda.py CLONE OUTPUT.jsonl [--published 25] [--own 60]

CLONE is a clone of deepreinforce-ai/CUDA-L1. A published solution is taken when it holds `__global__`, its calls of
`load_inline` can be read, and it compiles. Many declare what they bind twice or not at all, and so fall back to torch
by themselves: their bindings are mended, nothing else. What this writes is not to be committed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelrl_judge.building.binding import Unbindable, signatures
from kernelrl_judge.building.calls import InlineCall, find_inline_calls
from kernelrl_judge.building.lexing import Unreadable, items, text_of

# What no path compiles, with torch 2.11 and CUDA 13: kernels in the source that g++ is given, functions that do not
# exist, ambiguous calls, arrays in shared memory declared with several types; and one that hangs once it is bound.
_LEFT_OUT = {
    *("3090/1/44", "3090/1/52", "3090/1/95", "3090/2/31", "a100/1/29", "a100/1/35", "a100/1/37", "a100/2/31"),
    *("a100/2/93", "a100/3/45", "h100/2/35", "h20/1/29", "l40/1/95", "l40/2/67"),
}

_TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {reference}


def get_inputs():
    return [torch.randn(1024, 4096)]


def get_init_inputs():
    return []
"""

_KERNEL = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void map_kernel(const float* x, float* y, int64_t n) {{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) {{
        float v = x[i];
        y[i] = {expression};
    }}
}}

torch::Tensor map_values(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int64_t n = x.numel();
    map_kernel<<<(n + {threads} - 1) / {threads}, {threads}>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}}
"""

extension = load_inline(
    name="map_values",
    cpp_sources="torch::Tensor map_values(torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["map_values"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.map_values(x.contiguous())
'''

_MAPS = (
    ("torch.relu(x) * 2.0", "fmaxf(v, 0.0f) * 2.0f"),
    ("x * x + 1.0", "v * v + 1.0f"),
    ("torch.tanh(x)", "tanhf(v)"),
    ("torch.sigmoid(x)", "1.0f / (1.0f + expf(-v))"),
    ("x.abs().sqrt()", "sqrtf(fabsf(v))"),
    ("torch.clamp(x, -1.0, 1.0)", "fminf(fmaxf(v, -1.0f), 1.0f)"),
    ("torch.where(x > 0, x, 0.1 * x)", "v > 0.0f ? v : 0.1f * v"),
    ("x * torch.sigmoid(x)", "v / (1.0f + expf(-v))"),
    ("torch.cos(x) + x", "cosf(v) + v"),
    ("torch.exp(-x.abs())", "expf(-fabsf(v))"),
    ("x / (1.0 + x.abs())", "v / (1.0f + fabsf(v))"),
    ("torch.relu(x) - 0.5 * x", "fmaxf(v, 0.0f) - 0.5f * v"),
)
_THREADS = (64, 128, 256, 512, 1024)


def published(clone: Path) -> Iterator[dict[str, Any]]:
    seen = set()
    for path in sorted((clone / "optimized_cuda_code").glob("*.json")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            source = row.get("custom_code") or ""
            digest = hashlib.sha256(source.encode()).hexdigest()
            if digest in seen or row["level_id"] > 3 or "__global__" not in source:
                continue
            seen.add(digest)
            source = mended(source)
            calls = find_inline_calls(source)
            if calls and all(call.complete and declares(call) for call in calls):
                place = f"{path.stem}/{row['level_id']}/{row['task_id']}"
                if place not in _LEFT_OUT:
                    yield {"name": f"cuda-l1/{place}", "published": True, "task": row["ref_code"], "kernel": source}


def mended(source: str) -> str:
    """A solution whose bindings can be built: what is bound declared once, and no call that torch has removed."""
    source = re.sub(r"(AT_DISPATCH_\w+\s*\(\s*\w+)\.type\(\)", r"\1.scalar_type()", source)
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for call in find_inline_calls(source):
        node = next((n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.lineno == call.line), None)
        if node is None or not call.complete:
            continue
        if any("PYBIND11_MODULE" in piece.text for piece in (*call.cpp_sources, *call.cuda_sources)):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "functions"]
        elif missing := undeclared(call):
            texts = [piece.text for piece in call.cpp_sources]
            declared = ast.Constant("\n".join(["#include <torch/extension.h>", *missing, *texts]))
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "cpp_sources"]
            node.keywords.append(ast.keyword("cpp_sources", declared))
    return ast.unparse(tree)


def undeclared(call: InlineCall) -> list[str]:
    """Declarations of bound functions that only the CUDA source defines."""
    declared = "".join(piece.text for piece in call.cpp_sources)
    found = []
    for name, _ in call.functions or ():
        if re.search(rf"\b{name}\s*\(", declared):
            continue
        for piece in call.cuda_sources:
            try:
                pieces = items(piece.text)
            except Unreadable:
                continue
            for item in pieces:
                head = text_of([token for token in item.tokens[: item.body] if token.kind != "comment"])
                if item.kind == "function" and "__global__" not in head and re.search(rf"\b{name}\s*\(", head):
                    found.append(" ".join(head.split()) + ";")
    return found


def declares(call: InlineCall) -> bool:
    """Whether what is bound is declared where the binding can see it, and bound once."""
    sources = [piece.text for piece in (*call.cpp_sources, *call.cuda_sources)]
    own = [source for source in sources if "PYBIND11_MODULE" in source]
    if not call.functions:
        return bool(own)
    try:
        return not own and bool(signatures([piece.text for piece in call.cpp_sources], call.functions))
    except Unbindable as error:
        return "common" in str(error)


def own() -> Iterator[dict[str, Any]]:
    for threads in _THREADS:
        for reference, expression in _MAPS:
            yield {
                "name": f"own/{expression}/{threads}",
                "published": False,
                "task": _TASK.format(reference=reference),
                "kernel": _KERNEL.format(expression=expression, threads=threads),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--published", type=int, default=25)
    parser.add_argument("--own", type=int, default=60)
    given = parser.parse_args()
    taken = list(published(given.clone))
    # Spread over the files and the tasks, the same each time.
    taken.sort(key=lambda row: hashlib.sha256(row["kernel"].encode()).hexdigest())
    rows = [*taken[: given.published], *list(own())[: given.own]]
    rows.sort(key=lambda row: hashlib.sha256(row["kernel"].encode()).hexdigest())
    given.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{len(taken)} published solutions fit; wrote {len(rows)} kernels")


if __name__ == "__main__":
    main()
