"""How closely a model's logits agree with those of the system it came from or goes to."""

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.errors import CheckpointError
from sublayer.interop.families import Oracle
from sublayer.model.capacity import format_bytes
from sublayer.model.cost import need
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.transformer import Transformer
from sublayer.system_memory import total_memory

CERTIFICATE = "certificate.json"
_ROWS, _MAX_TOKENS, _SEED = 2, 128, 0
_FLOAT64_PARAMETERS = 1_000_000_000
_COPIES = 3
# Beyond rounding by far: what a tensor in the wrong place would cause.
_REFUSED_SHARE = 1e-3


@dataclass(frozen=True)
class Batch:
    """Random tokens; for encoders also which are real, and each one's segment: the second row is padded.

    A translator reads them as its source and, from behind, as its target, which is not padded (``is_pair``).
    """

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    segments: Int[Tensor, "B T"]
    is_padded: bool
    is_pair: bool

    @classmethod
    def draw(cls, config: ModelConfig) -> "Batch":
        """Draw the batch for a model: always the same for equal sizes."""
        shape = (_ROWS, min(need(config.max_len), _MAX_TOKENS))
        tokens = torch.randint(need(config.vocab_size), shape, generator=torch.Generator().manual_seed(_SEED))
        is_padded, is_pair = config.kind != "decoder", config.kind == "encoder-decoder"
        if is_pair:
            # M2M100 takes its padding for no token wherever it stands.
            other = config.first_position % need(config.vocab_size)
            tokens = torch.where(tokens == config.first_position - 1, other, tokens)
        lengths = torch.tensor([shape[1], (shape[1] + 1) // 2 if is_padded else shape[1]])[:, None]
        places = torch.arange(shape[1])
        return cls(tokens, places < lengths, ((places >= lengths // 2) & (places < lengths)).long(), is_padded, is_pair)

    def ours(self, model: Transformer) -> dict[str, Tensor]:
        """Give a model's outputs."""
        if isinstance(model, EncoderDecoder):
            output = model(self.tokens, self.mask, target=self.tokens.flip(1))
        else:
            output = model(self.tokens, self.mask, self.segments) if self.is_padded else model(self.tokens)
        return {"logits": output.logits, "sentence_logits": output.sentence_logits}

    def theirs(self, oracle: Any) -> Any:
        """Give the outputs of a model of transformers."""
        if not self.is_padded:
            return oracle(self.tokens)
        if oracle.config.is_encoder_decoder:
            mask = self.mask.long()
            return oracle(self.tokens, attention_mask=mask, decoder_input_ids=self.tokens.flip(1), use_cache=False)
        return oracle(self.tokens, attention_mask=self.mask.long(), token_type_ids=self.segments)

    def kept(self, logits: Tensor) -> Tensor:
        """Leave out padded places, whose logits mean nothing."""
        return logits[self.mask] if logits.dim() == 3 and not self.is_pair else logits


@torch.inference_mode()
def certify(
    model: Transformer, fields: Mapping[str, Any], tensors: Mapping[str, Tensor], oracle: Oracle
) -> dict[str, Any]:
    """Compare a model's logits with those of a class of transformers that has these fields and tensors.

    The tokens are random. transformers sees no file: what else a folder says cannot change what it does.

    An encoder's tokens are of both segments, one row of them padded, and all of its heads are compared. The certificate
    holds the largest absolute difference in float64 and float32 beside the largest logit; where transformers is not
    installed it says that nothing was compared. Models of more than a billion parameters are compared in float32 alone.

    Raises CheckpointError where a head's differ by more than a thousandth of its largest logit (or of 1).
    """
    if find_spec("transformers") is None:
        return {"checked": False, "reason": "transformers is not installed"}
    transformers: Any = import_module("transformers")
    batch = Batch.draw(model.config)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    dtypes = [torch.float64, torch.float32] if n_parameters <= _FLOAT64_PARAMETERS else [torch.float32]
    here = total_memory()
    if here is not None and _COPIES * n_parameters * dtypes[0].itemsize > here:
        needed = format_bytes(_COPIES * n_parameters * dtypes[0].itemsize)
        return {"checked": False, "reason": f"to compare needs {needed}, {format_bytes(here)} here"}
    theirs = _build(getattr(transformers, oracle.name), fields, tensors)
    differences: dict[str, float] = {}
    largest = 0.0
    for dtype in dtypes:
        output = batch.theirs(theirs.to(dtype))
        expected = {ours: getattr(output, name) for name, ours in oracle.outputs.items()}
        found = batch.ours(copy.deepcopy(model).to(device="cpu", dtype=dtype).eval())
        compared = [_compare(batch.kept(found[name]), batch.kept(logits)) for name, logits in expected.items()]
        differences[str(dtype).removeprefix("torch.")] = max(compared)
        largest = max(float(batch.kept(logits).abs().max()) for logits in expected.values())
    return {
        "checked": True,
        "against": f"transformers {transformers.__version__}",
        "tokens": {"rows": batch.tokens.shape[0], "length": batch.tokens.shape[1], "seed": _SEED},
        "largest_difference": differences,
        "largest_logit": largest,
    }


def describe(certificate: Mapping[str, Any]) -> str:
    """Say in a line what a certificate certifies."""
    if not certificate["checked"]:
        return f"not checked against transformers: {certificate['reason']}"
    differences = ", ".join(f"{value:.1e} in {name}" for name, value in certificate["largest_difference"].items())
    return (
        f"largest difference of logits from {certificate['against']}: {differences} "
        f"(largest logit {certificate['largest_logit']:.3g})"
    )


def _build(kind: Any, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    settings = dict(fields)
    if kind.config_class.is_encoder_decoder:
        # A table of sinusoids, of which no more is needed than is read.
        settings["max_position_embeddings"] = min(_MAX_TOKENS, settings.get("max_position_embeddings", _MAX_TOKENS))
    dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors.values()) else torch.float32
    with _quiet():
        config = kind.config_class(**settings)
        reading = {"state_dict": dict(tensors), "dtype": dtype, "local_files_only": True}
        return kind.from_pretrained(None, config=config, **reading).eval()


def _compare(found: Tensor, expected: Tensor) -> float:
    difference, largest = float((found - expected).abs().max()), max(1.0, float(expected.abs().max()))
    if not difference <= _REFUSED_SHARE * largest:
        raise CheckpointError(
            f"the model's logits differ from transformers' by {difference:.3g} (largest logit {largest:.3g}): "
            "it was not written"
        )
    return difference


@contextmanager
def _quiet() -> Iterator[None]:
    logging: Any = import_module("transformers.utils.logging")
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()
