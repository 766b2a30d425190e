"""The task under evaluation: its source, its reference, inputs, comparison, and the audit of a task."""
