"""Optional libraries, which an extra of the package installs."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sublayer.errors import DataError


def extra_module(name: str, what: str, extra: str = "data") -> Any:
    """Import an optional library; raise DataError where it is missing.

    ``what`` needs it, and ``extra`` is what installs it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(str(error.name), what, extra) from error


def check_extra(name: str, what: str, extra: str) -> None:
    """Raise DataError where an optional library is missing that another process imports."""
    if find_spec(name) is None:
        raise _missing(name, what, extra)


def _missing(name: str, what: str, extra: str) -> DataError:
    return DataError(f"{what} need {name}: pip install 'sublayer[{extra}]'")
