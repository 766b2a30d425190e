"""Parsing of Python sources, error texts and YAML, shared with plugins."""
