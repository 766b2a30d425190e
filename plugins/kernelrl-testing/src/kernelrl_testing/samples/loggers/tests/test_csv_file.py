"""Contract and file of the logger `csv_file`."""

from pathlib import Path

from kernelrl_plugin_csv_file.logger import CsvFile
from kernelrl_plugin_csv_file.options import CsvFileConfig
from kernelrl_testing.contracts import LoggerContract


class TestContract(LoggerContract):
    component = "csv_file"


def test_a_resumed_run_continues_the_file(tmp_path: Path) -> None:
    for step, held in ((0, -1), (1, 0)):
        logger = CsvFile(CsvFileConfig())
        assert logger.start(tmp_path, {}, step) == held
        logger.step({"step": step, "reward/mean": 0.5})
        logger.finish("stopped")
    assert (tmp_path / "reward.csv").read_text() == "0,0.5\n1,0.5\n"
