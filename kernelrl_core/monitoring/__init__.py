"""Metrics, costs, alarms, timeline, console and loggers."""
