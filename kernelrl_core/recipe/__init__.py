"""Recipes: schema, YAML, merging, structure."""
