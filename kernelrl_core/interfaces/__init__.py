"""Plugin interfaces: one file per kind, the hooks, and the declaration of components."""
