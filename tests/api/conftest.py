"""The runs and the command line of the tests of commands."""

from tests.commands.conftest import own_cache, reviewer, sublayer, trained, translator

__all__ = ["own_cache", "reviewer", "sublayer", "trained", "translator"]
