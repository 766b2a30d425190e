"""Task sources: KernelBench, a directory, or a data set."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_tasks() -> list[Component]:
    return [
        Component(
            "kernelbench",
            "kernelrl_plugin_kernelbench.benchmark:KernelBenchTasks",
            config="kernelrl_plugin_kernelbench.config:KernelBenchConfig",
            summary="KernelBench, from a clone or from the hub, with a held-out split",
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
            summary="Rows of a JSONL, JSON or Parquet file, or of a hub data set",
        ),
    ]
