"""Monitoring of a run: metrics, costs, alarms, timeline, console, loggers."""
