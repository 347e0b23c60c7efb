"""``sublayer export``: write a model in another system's format."""

from typing import Any

from sublayer.api.converting import export
from sublayer.cli.build import Json, client_of, print_result

EXAMPLE = "sublayer export runs/book --to huggingface exported"


@client_of(export)
def command(options: dict[str, Any], as_json: Json = False) -> None:
    """Write a model so that transformers loads it: a decoder as GPT-2 or GPT-1, an encoder as BERT
    or ALBERT, an encoder-decoder as M2M100, Marian or T5.

    GPT-1 is the class of decoders whose norms stand after their sub-layers, T5 that of
    encoder-decoders with relative positions. A model that was fine-tuned on a task becomes the
    class that answers it (labels or a number, choices, spans), with the words of its labels. A
    model that none of these classes can represent is refused, and the field that prevents it is
    named. Where transformers is installed, the logits of both models are compared; the largest
    difference is printed, and kept in certificate.json.
    """
    print_result(export(**options), as_json)
