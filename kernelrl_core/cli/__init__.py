"""The command line: one module per command, imported when that command is used."""
