"""Components whose modules break the contract when they are imported."""

from __future__ import annotations

from broken_components import Broken

BROKEN = [
    Broken("feedback", "noisy.Silent", ["import_is_quick_and_quiet", "is_found_and_loads"], "noisy.Config"),
    Broken("feedback", "heavy.Silent", ["options_import_nothing_heavy", "requires_names_all_imports"], "heavy.Config"),
]
