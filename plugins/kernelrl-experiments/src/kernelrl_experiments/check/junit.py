"""A file of test results in JUnit's XML, which CI systems read. https://github.com/testmoapp/junitxml describes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import attrs

from kernelrl_core.storage import disk_error, write_atomically

__all__ = ["JunitCase", "write_junit"]

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file may have, such as those of terminal colours. Messages quote what a kernel prints."""


@attrs.frozen
class JunitCase:
    """A test with its result."""

    group: str
    name: str
    seconds: float
    problem: Literal["", "failure", "error", "skipped"] = ""
    """Empty: the test passed."""
    headline: str = ""
    """The problem in one line."""
    text: str = ""
    """The problem in full."""


def write_junit(path: Path, suite: str, cases: Sequence[JunitCase]) -> None:
    """Write a file with one test suite.

    Raises:
        StorageError: the file cannot be written.
    """
    counts = {kind: str(sum(case.problem == kind for case in cases)) for kind in ("failure", "error", "skipped")}
    element = ElementTree.Element(
        "testsuite",
        name=suite,
        tests=str(len(cases)),
        failures=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    for case in cases:
        test = ElementTree.SubElement(
            element, "testcase", classname=_xml(case.group), name=_xml(case.name), time=f"{case.seconds:.3f}"
        )
        if case.problem:
            problem = ElementTree.SubElement(test, case.problem, message=_xml(case.headline))
            problem.text = _xml(case.text)
    suites = ElementTree.Element("testsuites")
    suites.append(element)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')
    except OSError as error:
        raise disk_error(path, error) from error


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
