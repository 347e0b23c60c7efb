"""The shapes that annotations name, checked wherever tests call what has them."""

from pathlib import Path

import jaxtyping
from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""A number may be whole where the annotation says ``float``."""

_UNCHECKED = {"sublayer.decode.beam", "sublayer.decode.sample"}
"""Their generators are in inference mode, which PyTorch would not see once they are wrapped."""


def check_shapes(project: Path) -> None:
    """Check the functions of every module that names shapes, from its import on."""
    named = [
        ".".join(path.relative_to(project).with_suffix("").parts)
        for path in (project / "sublayer").rglob("*.py")
        if "from jaxtyping import" in path.read_text(encoding="utf-8")
    ]
    jaxtyping.install_import_hook([name for name in named if name not in _UNCHECKED], "tests.shapes.check")
