"""Exits: the formats that models are exported to, and the functions that write them.

It does not import PyTorch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sublayer.interop.foreign_config import describe_classes


@dataclass(frozen=True)
class Exit:
    """A format, and its writer."""

    title: str
    """Its systems and models, as the help says them."""
    writer: str
    """Function, as ``module:function``, of a TextModel, a new folder and the given options;
    returns Exported. Raises ConfigError, naming the field, for a model that the format cannot
    represent."""
    options: tuple[str, ...] = ()
    """Parameters of ``sublayer.export`` that only some formats take, and that it takes."""


@dataclass(frozen=True)
class Exported:
    """A written folder."""

    class_name: str
    """The class or program that loads it."""
    certificate: Mapping[str, Any]
    """Its comparison with the model; see :mod:`sublayer.interop.certificate`."""
    has_tokenizer: bool
    following: str
    """A command or a line of Python that uses it."""
    lines: list[str] = field(default_factory=list)
    """Further lines for the terminal."""


EXITS: dict[str, Exit] = {
    "transformers": Exit(
        f"that of Hugging Face's transformers, which loads {describe_classes()}",
        "sublayer.interop.huggingface:export_transformers",
        options=("class_name",),
    ),
}
"""Formats by name."""
ALIASES = {"huggingface": "transformers"}
"""Other names of formats."""
