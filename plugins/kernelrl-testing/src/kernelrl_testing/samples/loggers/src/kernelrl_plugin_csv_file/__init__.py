"""Logger `csv_file` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_loggers() -> list[Component]:
    return [
        Component(
            "csv_file",
            target="kernelrl_plugin_csv_file.logger:CsvFile",
            config="kernelrl_plugin_csv_file.options:CsvFileConfig",
            summary="Mean score of each step in a CSV file",
        )
    ]
