"""The samples as rows of the public corpora.

    python plugins/kernelrl-plugin-raicl/tests/samples/rows.py DIRECTORY

writes `kernelbook.jsonl` and `ai_cuda_engineer.jsonl`, which `kernelrl index build` takes as local copies:
`--corpora kernelbook=DIRECTORY/kernelbook.jsonl,ai_cuda_engineer=DIRECTORY/ai_cuda_engineer.jsonl`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Sample(NamedTuple):
    """A row and its known properties."""

    corpus: str
    form: str
    name: str
    facts: dict[str, str]
    """Expectations, such as `fixed` and `runs`."""
    columns: dict[str, str]


def samples(corpus: str) -> Iterator[Sample]:
    """Samples of `kernelbook` or `archive`, in the order of forms and files."""
    for path in sorted((HERE / corpus).glob("*.txt")):
        for part in re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            head, *texts = re.split(r"^--- (\w+)\n", part, flags=re.MULTILINE)
            name, *lines = head.strip().splitlines()
            facts = dict(line.split(": ", 1) for line in lines)
            yield Sample(corpus, path.stem, name, facts, dict(zip(texts[::2], texts[1::2], strict=True)))


def kernelbook_row(sample: Sample) -> dict[str, Any]:
    """A row with the columns of KernelBook."""
    return {
        "entry_point": sample.name,
        "original_triton_code": "",
        "python_code": sample.columns["python_code"],
        "triton_code": sample.columns["triton_code"],
        "repo_name": "kernelrl/samples",
        "module_name": sample.name,
        "synthetic": True,
        "licenses": ["Apache-2.0"],
    }


def archive_row(sample: Sample, number: int) -> dict[str, Any]:
    """A row with the columns of the archive."""
    speedup = float(sample.facts.get("speedup", 1.0 + number / 10))
    empty: dict[str, Any] = dict.fromkeys(("Error", "NCU_Profile", "Torch_Profile", "Clang_Tidy"))
    return {
        "Op_Name": f"{number}_{sample.name}",
        "Level_ID": int(sample.facts["level"]),
        "Task_ID": number,
        "Kernel_Name": f"{sample.form}_{sample.name.lower()}",
        "CUDA_Runtime": 0.01,
        "PyTorch_Native_Runtime": 0.01 * speedup,
        "PyTorch_Compile_Runtime": 0.01,
        "CUDA_Speedup_Native": speedup,
        "CUDA_Speedup_Compile": 1.0,
        **{name: sample.columns[name] for name in ("CUDA_Code", "PyTorch_Code_Module", "PyTorch_Code_Functional")},
        "Correct": True,
        "Max_Diff": 0.0,
        **empty,
        "__index_level_0__": number,
    }


def rows(corpus: str) -> list[dict[str, Any]]:
    """Rows of a public corpus, `kernelbook` or `ai_cuda_engineer`."""
    if corpus == "kernelbook":
        return [kernelbook_row(sample) for sample in samples("kernelbook")]
    return [archive_row(sample, number) for number, sample in enumerate(samples("archive"), 901)]


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for name in ("kernelbook", "ai_cuda_engineer"):
        text = "".join(json.dumps(row) + "\n" for row in rows(name))
        (Path(sys.argv[1]) / f"{name}.jsonl").write_text(text, encoding="utf-8")
