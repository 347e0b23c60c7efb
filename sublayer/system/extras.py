"""Optional libraries, installed by extras of the package."""

from importlib import import_module
from typing import Any

from sublayer.errors import DataError


def extra_module(name: str, what: str, extra: str = "data") -> Any:
    """Import an optional library; raise DataError where it is missing.

    ``what`` needs it; ``extra`` installs it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(f"{what} need {error.name}: pip install 'sublayer[{extra}]'") from error
