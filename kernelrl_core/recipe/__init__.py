"""Recipes: schema, merging of layers, conversion to typed values, JSON schema."""
