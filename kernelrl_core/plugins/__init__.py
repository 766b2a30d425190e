"""Finds, loads and makes the components of installed plugins."""
