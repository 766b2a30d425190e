"""Dtypes that a source names."""

from __future__ import annotations

import pytest

from kernelrl_sources.dtypes import is_floating, named_dtypes


@pytest.mark.parametrize(
    ("source", "dtypes"),
    [
        ("torch.randn(2, dtype=torch.float16)", ("float16",)),
        ("torch.float8_e4m3fn, torch.half, torch.cfloat", ("float8_e4m3fn", "float16", "complex64")),
        ("x.half() + y.bfloat16().double()", ("float16", "bfloat16", "float64")),
        ("x.to('bfloat16')", ("bfloat16",)),
        ("np.float64", ("float64",)),
        ("b = torch.int64\na = torch.float16\nb = torch.int64", ("int64", "float16")),
        # Attributes and arguments that happen to have such a name.
        ("self.half = 3; x.float; f(double=1); self.half + 1", ()),
        ("x.half(memory_format=f)", ()),
        ("# torch.float16\nx = 'torch.float16 is meant'", ()),
        ("not python (", ()),
    ],
)
def test_the_dtypes_of_a_source_are_named_in_their_order(source: str, dtypes: tuple[str, ...]) -> None:
    assert named_dtypes(source) == dtypes


def test_integers_and_truth_values_are_not_floating() -> None:
    names = ("bool", "uint8", "int64", "float8_e5m2", "bfloat16", "complex32")
    assert [is_floating(name) for name in names] == [False, False, False, True, True, True]
