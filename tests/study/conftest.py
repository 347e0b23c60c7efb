"""Studies that were made once, and a folder for each test that asks them."""

import pytest

from tests.study.studies import Studies


@pytest.fixture(scope="session")
def studies(workshop):
    return Studies(workshop)


@pytest.fixture
def settings(studies, tmp_path, monkeypatch):
    """Settings of a tiny recipe on their text, with their cache, in a folder of its own."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(studies.place / "cache"))
    monkeypatch.chdir(tmp_path)
    return studies.settings
