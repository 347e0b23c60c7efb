"""``sublayer import``: make another system's model one of ours."""

from typing import Any

from sublayer.api.converting import import_model
from sublayer.cli.build import Json, client_of, emit
from sublayer.cli.following import after_importing

EXAMPLE = "sublayer import huggingface downloads/gpt2 --out runs/gpt2"


@client_of(import_model)
def command(options: dict[str, Any], as_json: Json = False) -> None:
    """Import a model of another system, with its tokenizer if it has one, into a new folder that
    all commands read.

    Where transformers is installed and can read the model, the logits of the two are compared, of
    an encoder without a head the hidden states; the largest difference is shown and kept in
    certificate.json. Of pickles only fairseq's are read, as tensors and plain values: nothing that
    a file names is run.
    """
    imported = import_model(**options)
    following = after_importing(imported["model"]) if imported["has_tokenizer"] else []
    emit(imported.to_dict(), as_json, lambda _: "\n".join([str(imported), *following]))
