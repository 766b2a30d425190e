"""Logger for Trackio."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_loggers() -> list[Component]:
    return [
        Component(
            "trackio",
            "kernelrl_plugin_trackio.logger:TrackioLogger",
            config="kernelrl_plugin_trackio.config:TrackioConfig",
            summary="Metrics in Trackio's database on this machine",
            requires=Requires(modules=("trackio",), fix="pip install kernelrl-plugin-trackio"),
        )
    ]
