"""The commands, one module each: a function ``command`` with typed parameters, and an ``EXAMPLE`` that works."""
