"""Find, load and construct the components of installed plugins."""
