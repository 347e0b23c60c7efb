"""The commands, a module each: a typed function ``command``, and an ``EXAMPLE`` that works.

A command of several files is a folder, whose ``command`` is that module.
"""
