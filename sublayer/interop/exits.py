"""Exits: the formats that models are exported to, their writers, and models on the hub.

It does not import PyTorch.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError
from sublayer.files.storage import check_paths, new_folder
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
    engine: str = ""
    """Its class, as ``module:class``, by which ``--engine`` computes; empty for none."""


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


@contextmanager
def new_export(out: Path) -> Iterator[Path]:
    """Give a folder that becomes ``out`` once it is complete; raise ConfigError where it cannot."""
    check_paths(out, out)
    try:
        with new_folder(out) as partial:
            yield partial
    except OSError as error:
        raise ConfigError(
            f"cannot write {out}: {error.strerror or error}; name another folder"
        ) from None


_HUB_MODEL = re.compile(r"hub:([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@([\w./-]+))?")


@dataclass(frozen=True)
class HubModel:
    """A model on the Hugging Face hub."""

    name: str
    revision: str | None = None
    """Its branch, tag or commit; None: the newest commit."""

    @classmethod
    def parse(cls, text: str) -> "HubModel | None":
        """Read ``hub:OWNER/NAME``, also with ``@REVISION``; None for any other text."""
        found = _HUB_MODEL.fullmatch(text)
        return None if found is None else cls(*found.groups())

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"hub:{self.name}{revision}"


EXITS: dict[str, Exit] = {
    "transformers": Exit(
        f"that of Hugging Face's transformers, which loads {describe_classes()}",
        "sublayer.interop.huggingface:export_transformers",
        options=("class_name",),
    ),
    "gguf": Exit(
        "a file for llama.cpp, of a decoder",
        "sublayer.interop.gguf:export_gguf",
        options=("dtype",),
    ),
    "onnx": Exit(
        "ONNX files of any model, of which those of decoders have a cache",
        "sublayer.interop.onnx:export_onnx",
        engine="sublayer.interop.onnx:Onnx",
    ),
    "safetensors": Exit(
        "plain weights, with the model's settings as JSON",
        "sublayer.interop.certificate:export_safetensors",
    ),
    "ctranslate2": Exit(
        "that of CTranslate2 and of `--engine ctranslate2`, for a fast processor or GPU",
        "sublayer.interop.ctranslate2:export_ctranslate2",
        options=("dtype",),
        engine="sublayer.interop.ctranslate2:CTranslate2",
    ),
}
ALIASES = {"huggingface": "transformers"}
