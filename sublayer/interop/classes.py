"""Classes of transformers that models are imported from and exported to, listed without PyTorch."""

from dataclasses import dataclass

from sublayer.numbers import enumerate_names, with_article


@dataclass(frozen=True)
class ForeignClass:
    """A class of transformers for models of one kind."""

    title: str
    """The model's name, as its family has it."""
    kind: str
    """``model.kind`` of its models."""
    family: str
    """The subclass of ``Family`` that converts it, as ``module:class``."""


CLASSES: tuple[ForeignClass, ...] = (
    ForeignClass("GPT-2", "decoder", "sublayer.interop.gpt:Gpt2"),
    ForeignClass("GPT-1", "decoder", "sublayer.interop.gpt:Gpt1"),
    ForeignClass("BERT", "encoder", "sublayer.interop.bert:Bert"),
    ForeignClass("ALBERT", "encoder", "sublayer.interop.bert:Albert"),
    ForeignClass("M2M100", "encoder-decoder", "sublayer.interop.seq2seq:M2M100"),
    ForeignClass("Marian", "encoder-decoder", "sublayer.interop.seq2seq:Marian"),
    ForeignClass("T5", "encoder-decoder", "sublayer.interop.seq2seq:T5"),
)
"""If several can represent a model, an export uses the first."""


def describe_classes() -> str:
    """List the classes by the kind of their models, as in ``a decoder as GPT-2 or GPT-1``."""
    parts = []
    for kind in dict.fromkeys(row.kind for row in CLASSES):
        titles = [row.title for row in CLASSES if row.kind == kind]
        parts.append(f"{with_article(kind)} as {enumerate_names(titles, 'or')}")
    return ", ".join(parts)
