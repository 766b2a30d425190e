"""Reading of replies, kernel files, task files and YAML."""
