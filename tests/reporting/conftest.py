"""Studies as the tests of ``tests/study`` make them."""

from tests.study.conftest import settings, studies

__all__ = ["settings", "studies"]
