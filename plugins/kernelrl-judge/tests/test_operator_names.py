"""Kinds of operators by their names in the dispatcher, and in the symbols of an extension."""

from __future__ import annotations

import pytest

from kernelrl_judge.protocol.operator_names import arranges


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("aten::flatten", True),
        ("aten::flatten_using_ints", True),
        ("aten::unflatten_int", True),
        ("aten::transpose_int", True),
        ("aten::squeeze_dim", True),
        ("aten::squeeze__dims", True),
        ("aten::unbind_int", True),
        ("aten::movedim_int", True),
        ("aten::hsplit_array", True),
        ("aten::arange_start_step", True),
        ("aten::max_dim", False),
        ("aten::view_as_real", True),
        ("aten::add_", False),
        ("aten::sort", False),
    ],
)
def test_operators_that_only_arrange_are_known_by_their_names(name: str, does: bool) -> None:
    assert arranges(name) is does
