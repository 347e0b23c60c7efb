"""The runs of the tests of commands."""

from tests.commands.conftest import reviewer, trained, translator

__all__ = ["reviewer", "trained", "translator"]
