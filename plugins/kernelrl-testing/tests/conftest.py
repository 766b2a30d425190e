"""Modules that these tests import: broken components, and plugins in the layout that pip installs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[3] / "tests"))
