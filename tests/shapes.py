"""The shapes that annotations name, checked wherever tests call what has them."""

import functools
import sys
from collections import Counter

import jaxtyping
import torch
from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""A number may be whole where the annotation says ``float``."""
_UNCHECKED = {"sublayer.decode.beam", "sublayer.decode.sample"}
"""Their generators are in inference mode, which PyTorch would not see once they are wrapped."""
_MOST_CALLS = 12
"""Calls of a function that one test checks: a training of many steps repeats the same shapes."""
_calls, _left_alone = Counter(), []


def check_shapes(project):
    """Check the functions of every module that names shapes, from its import on."""
    files = (project / "sublayer").rglob("*.py")
    paths = [path for path in files if "from jaxtyping import" in path.read_text(encoding="utf-8")]
    names = {".".join(path.relative_to(project).with_suffix("").parts) for path in paths}
    jaxtyping.install_import_hook(sorted(names - _UNCHECKED), "tests.shapes.check")


def check_again():
    _calls.clear()
    for function in _left_alone:
        function.__no_type_check__ = False
    _left_alone.clear()


def check(function):
    """Wrap what jaxtyping makes of a function, to check the types of its arguments and result."""
    checked, name = _beartype(function), (function.__module__, function.__qualname__)

    @functools.wraps(function)
    def counted(*args, **kwargs):
        if torch.compiler.is_exporting():  # sizes are symbols, of which none is an int
            return function(*args, **kwargs)
        _calls[name] += 1
        if _calls[name] == 2 * _MOST_CALLS:  # once for the arguments, once for the result
            _leave_alone(*name)
        return checked(*args, **kwargs)

    return counted


def _leave_alone(module, qualified_name):
    found = sys.modules[module]
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    found = getattr(found, "__func__", found)  # of a class method
    if callable(found):  # and neither a property nor within a function
        found.__no_type_check__ = True
        _left_alone.append(found)
