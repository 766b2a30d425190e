"""Which mutants of `corpora/mutated_kernels.py` are wrong, and on which inputs: a numerical check without the judge.

    python benchmarks/mutant_differences.py --output benchmarks/results/mutant_differences.json

Every right kernel and every mutant is called twice in this process, on inputs as the task draws them and then on
changed inputs within the range of what it draws. Both are compared with the task in double precision. A mutant is
wrong on inputs on which its error exceeds the tolerance of its dtype and the right kernel's is clearly below it.
Mutants that are wrong on none are equivalent, and `mutants.py` excludes them. Triton is interpreted; C++ needs g++.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from corpora.mutated_kernels import DTYPES, KERNELS, RightKernel
from provenance import provenance

RESULT = Path(__file__).parent / "results" / "mutant_differences.json"
TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
"""Largest error, relative to the sum of an element and the root mean square of its output."""
RIGHT = 0.7
"""Largest error of a right kernel, in tolerances. Triton's interpreter cuts off low bits where a device rounds."""
Change = Callable[[torch.Tensor], torch.Tensor]


def _second_half(x: torch.Tensor, factor: float) -> torch.Tensor:
    x = x.clone()
    x[..., x.shape[-1] // 2 :] *= factor
    return x


ANY_NUMBER: dict[str, Change] = {
    "zeros": torch.zeros_like,
    "small": lambda x: x * 2e-3,
    "levels": lambda x: _second_half(x, 8.0),
    "levels of rows": lambda x: _second_half(x.movedim(0, -1), 8.0).movedim(-1, 0),
    "ties": lambda x: (x * 2).round() / 2,
    "negative": lambda x: -x.abs(),
    "large": lambda x: x * 40,
    "far from zero": lambda x: x + 60,
}
"""Changes of inputs that are drawn by `randn`."""

BOUNDED: dict[str, Change] = {
    "zeros": torch.zeros_like,
    "levels": lambda x: _second_half(x, 0.25),
    "levels of rows": lambda x: _second_half(x.movedim(0, -1), 0.25).movedim(-1, 0),
}
"""Changes of inputs that are drawn by `rand`."""


def changed_inputs(drawn: list[torch.Tensor]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Inputs within the range of drawn ones: as drawn, then with one change to each floating-point tensor."""
    yield "drawn", drawn
    floats = [x for x in drawn if x.is_floating_point()]
    bounded = any(float(x.abs().max()) <= 1 for x in floats)
    for name, change in (BOUNDED if bounded else ANY_NUMBER).items():
        yield name, [change(x) if x.is_floating_point() else x for x in drawn]
    ends = [x if x.is_floating_point() else (torch.arange(x.numel()) % 2 * x.max()).view(x.shape) for x in drawn]
    if len(floats) < len(drawn):
        yield "ends of integers", ends


def error(actual: Any, expected: Any, unit: float) -> float:
    """Largest error in units of the tolerance; integers are equal or not."""
    if isinstance(expected, tuple | list):
        return max(error(one, other, unit) for one, other in zip(actual, expected, strict=True))
    if not expected.is_floating_point():
        return 0.0 if torch.equal(actual.long(), expected.long()) else math.inf
    actual, expected = actual.double(), expected.double()
    if not torch.equal(actual.isfinite(), expected.isfinite()):
        return math.inf
    off = (actual - expected)[expected.isfinite()]
    if not off.numel():
        return 0.0
    kept = expected[expected.isfinite()]
    scale = kept.abs() + kept.square().mean().sqrt() + 1e-30
    return float((off.abs() / scale).max()) / unit


class Modules:
    """Tasks and kernels, each loaded from a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def load(self, source: str) -> Any:
        self.count += 1
        path = self.folder / f"module_{self.count}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def in_double(source: str) -> str:
    """A task whose tensors are all float64."""
    for name, _ in DTYPES.values():
        source = source.replace(f"DTYPE = torch.{name}", "DTYPE = torch.float64")
    return source.replace(".float()", ".double()").replace("torch.float32", "torch.float64")


class Extensions:
    """All C++ sources of the chosen kernels as one extension, because most of a build is for the headers of PyTorch."""

    def __init__(self, chosen: list[RightKernel]) -> None:
        import kernelrl_build

        self.names: dict[str, str] = {}
        parts, bound = [], []
        for entry in chosen:
            for dtype in entry.dtypes if entry.backend == "cpp" else ():
                kernels = [entry.kernel(dtype), *(entry.mutant(edit, dtype) for edit in entry.edits)]
                for source in map(_cpp_source, kernels):
                    head, using, body = source.partition("using T")
                    name = f"kernel_{len(self.names)}"
                    self.names[source] = name
                    parts.append(f"namespace {name} {{\n{using}{body}\n}}")
                    bound.append(f'm.def("{name}", &{name}::run);')
        if parts:
            module = f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {' '.join(bound)} }}"
            self.module = kernelrl_build.load_inline("mutants", "\n".join([head, *parts, module]))

    def load_inline(self, name: str, source: str, functions: list[str]) -> Any:
        """The part of the extension that a source became."""
        return types.SimpleNamespace(run=getattr(self.module, self.names[source]))


def _cpp_source(kernel: str) -> str:
    return kernel.split('"""')[1]


class Check:
    """A task in its dtype and in double precision, with two draws of each change of its inputs."""

    def __init__(self, modules: Modules, entry: RightKernel, dtype: str) -> None:
        torch.manual_seed(0)
        self.modules, self.unit = modules, TOLERANCES[dtype]
        task, double = modules.load(entry.task(dtype)), modules.load(in_double(entry.task(dtype)))
        reference = double.Model()
        self.parameters = [torch.randn_like(one).to(task.DTYPE) for one in reference.parameters()]
        for one, value in zip(reference.parameters(), self.parameters, strict=True):
            one.data = value.double()
        draws = [dict(changed_inputs(task.get_inputs())) for _ in range(2)]
        self.inputs = {change: [draw[change] for draw in draws] for change in draws[0]}
        self.expected = {
            change: [reference(*(x.double() if x.is_floating_point() else x for x in one)) for one in inputs]
            for change, inputs in self.inputs.items()
        }

    def errors(self, source: str) -> Iterator[tuple[str, float]]:
        """Changes of inputs, and the error of a kernel on each; every change has a new model that is called twice."""
        kernel = self.modules.load(source)
        for change, inputs in self.inputs.items():
            made = kernel.ModelNew()
            for one, value in zip(made.parameters(), self.parameters, strict=True):
                one.data = value
            found = 0.0
            for each, expected in zip(inputs, self.expected[change], strict=True):
                found = max(found, error(made(*each), expected, self.unit))
            yield change, found

    def is_finite(self, change: str) -> bool:
        """Whether the reference is finite on changed inputs, so that a kernel has to be right there."""
        outputs = [one for each in self.expected[change] for one in (each if isinstance(each, tuple) else (each,))]
        return all(bool(one.isfinite().all()) for one in outputs)

    def take_indices_of(self, source: str) -> None:
        """Expect the indices of the right kernel, because a sort leaves those of equal values open."""
        for change, expected in self.expected.items():
            if isinstance(expected[0], tuple | list):
                made = self.modules.load(source).ModelNew()
                self.expected[change] = [
                    (values, made(*each)[1]) for (values, _), each in zip(expected, self.inputs[change], strict=True)
                ]


@torch.no_grad()
def differences(modules: Modules, entry: RightKernel, dtype: str) -> list[dict[str, Any]]:
    """A row for the right kernel and for each of its mutants."""
    check = Check(modules, entry, dtype)
    check.take_indices_of(entry.kernel(dtype))
    right = dict(check.errors(entry.kernel(dtype)))
    rows = [{"kernel": entry.name, "dtype": dtype, "edit": None, "error": round(right["drawn"], 4)}]
    for number, edit in enumerate(entry.edits):
        row: dict[str, Any] = {"kernel": entry.name, "dtype": dtype, "edit": number, "kind": edit[0], "wrong_on": None}
        for change, found in check.errors(entry.mutant(edit, dtype)):
            if found > 1 and right[change] <= RIGHT and check.is_finite(change):
                row |= {"wrong_on": change, "error": "inf" if math.isinf(found) else round(found, 2)}
                break
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--only", nargs="*", help="names of kernels; other rows of the output are kept")
    given = parser.parse_args()
    import torch.utils.cpp_extension

    origin = provenance("torch", "triton")
    chosen = [entry for entry in KERNELS if not given.only or entry.name in given.only]
    torch.utils.cpp_extension.load_inline = Extensions(chosen).load_inline
    before = json.loads(given.output.read_text())["rows"] if given.only and given.output.exists() else []
    rows = [row for row in before if row["kernel"] not in given.only]
    with tempfile.TemporaryDirectory() as folder:
        modules = Modules(Path(folder))
        for entry in chosen:
            for dtype in entry.dtypes:
                found = differences(modules, entry, dtype)
                rows += found
                wrong = sum(bool(row.get("wrong_on")) for row in found)
                print(f"{entry.name} {dtype}: {wrong} of {len(found) - 1} wrong", file=sys.stderr, flush=True)
            given.output.write_text(json.dumps({"provenance": origin, "rows": rows}, indent=1) + "\n")
    inexact = [row for row in rows if row["edit"] is None and row["error"] > RIGHT]
    if inexact:
        sys.exit(f"not right within {RIGHT} of the tolerance: {inexact}")


if __name__ == "__main__":
    main()
