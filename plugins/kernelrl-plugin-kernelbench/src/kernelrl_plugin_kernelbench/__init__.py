"""Tasks from KernelBench, from a directory or from a data set."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_tasks() -> list[Component]:
    return [
        Component(
            "kernelbench",
            "kernelrl_plugin_kernelbench.benchmark:KernelBenchTasks",
            config="kernelrl_plugin_kernelbench.config:KernelBenchConfig",
            summary="KernelBench, from a clone or from the hub, with a hold-out",
        ),
        Component(
            "directory",
            "kernelrl_plugin_kernelbench.directory:DirectoryTasks",
            config="kernelrl_plugin_kernelbench.config:DirectoryConfig",
            summary="Task files below a directory",
        ),
        Component(
            "dataset",
            "kernelrl_plugin_kernelbench.dataset:DatasetTasks",
            config="kernelrl_plugin_kernelbench.config:DatasetConfig",
            summary="Rows of a JSONL, JSON or parquet file or of a hub data set",
        ),
    ]
