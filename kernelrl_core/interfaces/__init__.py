"""One file per kind of plugin, and what a plugin declares about itself."""
