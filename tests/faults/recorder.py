"""A pytest plugin that notes which tests reach the code of which faults, and how long each takes.

It runs in a copy of the project whose faulty places call ``sublayer._reached.reach``, in the tests'
process or any that they start. What a fixture of a wide scope reaches counts for all tests that ask
for the fixture.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ["SUBLAYER_FAULTS"])


def _note(name: str, row: object) -> None:
    with (FOLDER / f"{name}-{os.getpid()}").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    before = os.environ.get("PYTEST_CURRENT_TEST")
    if fixturedef.scope != "function":
        os.environ["PYTEST_CURRENT_TEST"] = f"fixture {fixturedef.baseid}::{fixturedef.argname}"
    yield
    if before is not None:
        os.environ["PYTEST_CURRENT_TEST"] = before


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or not hasattr(report, "node"):
        _note("reports", [report.nodeid, report.when, report.outcome, report.duration])


def pytest_runtest_setup(item: Any) -> None:
    wide = [
        f"fixture {definition.baseid}::{definition.argname}"
        for definitions in item._fixtureinfo.name2fixturedefs.values()
        for definition in definitions
        if definition.scope != "function"
    ]
    if wide:
        _note("fixtures", [item.nodeid, wide])
