"""The runs and the command line of the tests of commands."""

from tests.commands.conftest import own_cache, reviewer, sublayer, trained
from tests.commands.translate.conftest import translator

__all__ = ["own_cache", "reviewer", "sublayer", "trained", "translator"]
