"""A harness without defences: one process, a known seed, Python's clock, `allclose`.

python naive_harness.py REFERENCE CANDIDATE  ->  {"correct": true, "speedup": 12.3}
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import time

import torch
import triton  # noqa: F401  # loaded once, before the forks


def load(path: str, name: str) -> object:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    if "reference" in sys.modules:
        module.Model = sys.modules["reference"].Model
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def measure(model: torch.nn.Module, inputs: list[torch.Tensor]) -> float:
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def judge() -> None:
    reference = load("reference.py", "reference")
    candidate = load("candidate.py", "candidate")
    torch.manual_seed(0)
    expected_model = reference.Model(*reference.get_init_inputs())
    torch.manual_seed(0)
    model = candidate.ModelNew(*reference.get_init_inputs())
    torch.manual_seed(0)
    given = reference.get_inputs()
    correct = True
    for _ in range(3):
        actual = model(*given)
        expected = expected_model(*given)
        pairs = zip(*(value if isinstance(value, tuple) else (value,) for value in (expected, actual)), strict=False)
        for wanted, got in pairs:
            correct = correct and bool(torch.allclose(wanted, got, atol=1e-2, rtol=1e-2, equal_nan=True))
    baseline = measure(expected_model, given)
    print(json.dumps({"correct": correct, "speedup": baseline / max(measure(model, given), 1e-9)}), flush=True)


torch.set_num_threads(1)
for folder in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        try:
            with torch.no_grad():
                judge()
        except BaseException as error:
            print(json.dumps({"correct": False, "error": repr(error)}), flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
