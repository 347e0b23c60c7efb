"""Shared by the tests of data: a cache of their own, and splits made by hand."""

import numpy as np
import pytest

from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer


@pytest.fixture(scope="session", autouse=True)
def kept(tmp_path_factory):
    """A cache of the tests' own, where none is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("kept")))
        yield


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def make_split():
    def make(ids, *, document_starts=(0,), source_starts=(0,), weights=None):
        store = TokenStore(
            ids=np.array(ids, dtype=np.uint16),
            document_starts=np.array(document_starts),
            source_starts=np.array(source_starts),
            n_bytes=len(ids),
            sha256="0" * 64,
            is_lossless=True,
        )
        names = tuple(f"source {index}" for index in range(len(source_starts)))
        return Split("train", store, ByteTokenizer(), names, weights)

    return make
