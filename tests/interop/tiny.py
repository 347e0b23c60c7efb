"""One tiny random model of each class of transformers that is read, and its logits."""

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.interop.classes import CLASSES, VOCAB_SIZE

LENGTH = 7


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
        model = self.kind(self.kind.config_class(**self.fields, **rules))
        model = model.to(next(iter(self.tensors.values())).dtype).eval()
        model.load_state_dict(self.tensors, strict=False)
        model.tie_weights()
        return model


@torch.no_grad()
def tiny(name, *, dtype=torch.float64, **changes):
    """Build a model of a class with every parameter random, norms and biases included."""
    import transformers

    title, fields = CLASSES[name]
    kind = getattr(transformers, title)
    fields = {**fields, **changes}
    model = kind(kind.config_class(**fields)).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    for place, parameter in model.named_parameters():
        if "embed_positions" not in place:
            parameter.normal_(std=0.3, generator=generator)
            if "norm" in place.lower() or ".ln_" in place:
                parameter.add_(place.endswith("weight"))
    if name == "marian":
        model.final_logits_bias.normal_(generator=generator)
    stored = {}
    for key, tensor in model.state_dict().items():
        # As transformers saves them: of those that are one, the first.
        stored.setdefault(tensor.data_ptr(), (key, tensor.contiguous()))
    return Tiny(name, kind, {"model_type": model_type(name), **fields}, dict(stored.values()))


def model_type(name):
    return name.partition(" ")[0]


def batch():
    """Return the tokens that models are asked about, and those that follow for a translator."""
    generator = torch.Generator().manual_seed(3)
    # No token is a padding, to which M2M100 gives no position.
    tokens = torch.randint(4, VOCAB_SIZE - 1, (2, LENGTH), generator=generator)
    return tokens, tokens.flip(1)


@torch.inference_mode()
def ours(model):
    tokens, target = batch()
    model = model.double()
    if model.config.kind == "encoder-decoder":
        return model(tokens, torch.ones_like(tokens).bool(), target=target).logits
    output = model(tokens)
    return output.get("label", output.get("span", output.get("vocabulary")))


@torch.inference_mode()
def theirs(model):
    tokens, target = batch()
    model = model.double().eval()
    if model.config.is_encoder_decoder:
        return model(tokens, decoder_input_ids=target, use_cache=False).logits
    title = type(model).__name__
    if title.endswith("ForMultipleChoice"):
        return model(tokens[None]).logits.T
    if title.endswith("DoubleHeadsModel"):
        return model(tokens[None]).mc_logits.T
    if title in ("GPT2ForSequenceClassification", "OpenAIGPTForSequenceClassification"):
        # Without a padding it reads the last token, and one row.
        model.config.pad_token_id = None
        return torch.cat([model(row[None]).logits for row in tokens])
    output = model(tokens, return_dict=True)
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    return output.logits if "logits" in output else output.prediction_logits
