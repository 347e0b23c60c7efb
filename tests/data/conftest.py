"""Shared by the tests of data: a cache of their own."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def kept(tmp_path_factory):
    """A cache of the tests' own and no folder of corpora, where none is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SUBLAYER_DATA", raising=False)
        patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("kept")))
        yield


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"
