from __future__ import annotations

import sys
from pathlib import Path

FAKES = str(Path(__file__).parents[3] / "tests/fakes")

if FAKES not in sys.path:
    sys.path.append(FAKES)
