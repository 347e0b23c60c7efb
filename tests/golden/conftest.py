"""Texts that are trained on, and a cache of these tests' own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.texts import write_texts


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    write_texts(folder)
    return folder


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
