"""A tiny random model of each class of transformers, and one of ours that becomes each."""

import json
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.interop.certificate import certify
from sublayer.interop.huggingface import FAMILIES
from tests.interop.classes import CLASSES, EXPORTED, VOCAB_SIZE
from tests.model.test_published import Lifted

CONTEXT = 8
UNREAD = {"bart": "embed_positions", "roberta": "position_embeddings"}
"""Tables of positions whose first two rows no position has."""


@contextmanager
def lifted(kind, dtype=torch.float64):
    """Compute in float64 what a decoder of transformers, or ModernBERT, computes in float32."""
    family = FAMILIES.get(kind.config_class.model_type)
    is_rotary = family is not None and family.always.get("positions") == "rotary"
    is_lifted = is_rotary and dtype == torch.float64
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype if is_lifted else usual)
    try:
        with Lifted() if is_lifted else nullcontext():
            yield
    finally:
        torch.set_default_dtype(usual)


@dataclass(frozen=True)
class Tiny:
    """A model's class, the fields of its config.json, and its tensors by their names there."""

    name: str
    kind: Any
    fields: dict[str, Any]
    tensors: dict[str, Tensor]

    def save(self, folder, **changes):
        """Write the folder, with other fields in its config.json; an Ellipsis leaves one out."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        fields = {**self.fields, **changes}
        fields = {key: value for key, value in fields.items() if value is not ...}
        (folder / "config.json").write_text(json.dumps(fields))
        if not (folder / "model.safetensors").exists():
            tensors = {key: tensor.clone() for key, tensor in self.tensors.items()}
            save_file(tensors, folder / "model.safetensors")
        return folder

    def model(self, **rules):
        with lifted(self.kind):
            model = self.kind(self.kind.config_class(**self.fields, **rules))
        model = model.to(next(iter(self.tensors.values())).dtype).eval()
        model.load_state_dict(self.tensors, strict=False)
        model.tie_weights()
        return model


@torch.no_grad()
def tiny(name, *, title="", dtype=torch.float64, seed=1, **changes):
    """Build a model of a class with every parameter random, norms and biases included."""
    import transformers

    usual, fields = CLASSES[name]
    kind = getattr(transformers, title or usual)
    fields = {key: each for key, each in {**fields, **changes}.items() if each is not ...}
    model = kind(kind.config_class(**fields)).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    of_sinusoids, before_first = ("m2m_100", "marian"), UNREAD.get(model_type(name), "none")
    for place, parameter in model.named_parameters():
        if name not in of_sinusoids or "embed_positions" not in place:
            # In steps of 2^-12, to which a class may add 1 exactly.
            parameter.normal_(std=0.3, generator=generator).mul_(4096).round_().div_(4096)
            if "norm" in place.lower() or ".ln_" in place:
                parameter.add_(place.endswith("weight"))
        if before_first in place:
            parameter[:2] = 0.0
        if "token_type" in place and len(parameter) == 1:
            parameter.zero_()  # an import adds it to the positions
    if name == "marian":
        model.final_logits_bias.normal_(generator=generator)
    stored = {}
    for key, tensor in model.state_dict().items():
        # As transformers saves them: of those that are one, the first.
        stored.setdefault(tensor.data_ptr(), (key, tensor.contiguous()))
    return Tiny(name, kind, {"model_type": model_type(name), **fields}, dict(stored.values()))


def model_type(name):
    return name.partition(" ")[0]


def difference(name, text_model, theirs):
    """Return the largest difference of outputs, in float64, from those of a class's model."""
    oracle = FAMILIES[name].oracle(text_model.model.config)
    compared = certify(text_model.model, {}, {}, oracle, load=lambda: theirs)
    return compared["largest_difference"]["float64"]


def resolved(fields, vocab_size=VOCAB_SIZE):
    config = ModelConfig.model_validate(fields)
    context = config.max_len or CONTEXT
    return resolve_model(config, vocab_size=config.vocab_size or vocab_size, context=context)


def config_of(name, **changes):
    return resolved({**EXPORTED[name][1], **changes})


@torch.no_grad()
def with_random_vectors(model, std=0.1):
    """Add noise to biases and norms, which are built as zeros and ones; give the model."""
    generator = torch.Generator().manual_seed(2)
    for each in (parameter for parameter in model.parameters() if parameter.dim() == 1):
        each.add_(torch.empty_like(each).normal_(std=std, generator=generator))
    return model.eval()
