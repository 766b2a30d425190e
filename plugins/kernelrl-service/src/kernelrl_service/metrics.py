"""Metrics of a server for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Counters of requests and evaluations."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "kernelrl_requests", "HTTP requests by path and status.", ["path", "status"], registry=self._registry
        )
        self._evaluations = Counter(
            "kernelrl_evaluations",
            "Finished evaluations by outcome; error: without an outcome.",
            ["outcome"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "kernelrl_evaluation_seconds", "Duration of evaluations.", buckets=_SECONDS, registry=self._registry
        )

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge whose value is read for each response."""
        Gauge(name, text, registry=self._registry).set_function(value)

    def request(self, path: str, status: int) -> None:
        """Count a request.

        Args:
            path: as the endpoint states it, not as the client wrote it.
        """
        self._requests.labels(path, str(status)).inc()

    def evaluation(self, response: Mapping[str, Any], seconds: float) -> None:
        """Count an evaluation.

        Args:
            response: of `serve_request`.
        """
        evaluation = response.get("evaluation")
        self._evaluations.labels(evaluation["outcome"] if evaluation is not None else "error").inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
