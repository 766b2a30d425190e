"""Generators of the reference pages of `docs/`. `scripts/reference_pages.py` writes the pages."""
