"""Modules of this folder may be imported by its tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from modal import _serialization
from modal._utils import function_utils

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _modal_as_installed() -> Iterator[None]:
    """Undo `refuse_pickles`."""
    kept = function_utils.deserialize, _serialization.deserialize
    yield
    function_utils.deserialize, _serialization.deserialize = kept
