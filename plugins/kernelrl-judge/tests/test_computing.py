"""Symbols of extensions that compute."""

from __future__ import annotations

from kernelrl_judge.probes.computing import computing_symbols


def test_symbols_that_arrange_or_sum_do_not_compute() -> None:
    kept = ["PyObject_Vectorcall", "aten::empty_like", "aten::sum", "aten::to_dtype_layout", "torch::jit::parseSchema"]
    named = [*kept, "aten::relu", "cublasSgemm_v2"]
    assert computing_symbols(named) == ["aten::relu", "cublasSgemm_v2"]
