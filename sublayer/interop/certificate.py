"""How closely a model's logits agree with those of the system it came from or goes to."""

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.model.transformer import Transformer

CERTIFICATE = "certificate.json"
_ROWS, _MAX_TOKENS, _SEED = 2, 128, 0
_FLOAT64_PARAMETERS = 1_000_000_000
# Beyond rounding by far: what a tensor in the wrong place would cause.
_REFUSED_SHARE = 1e-3


@torch.inference_mode()
def certify(model: Transformer, folder: Path) -> dict[str, Any]:
    """Compare a model's logits with those of transformers' GPT-2 on the HuggingFace folder, for random tokens.

    The certificate holds the largest absolute difference in float64 and float32 beside the largest logit; where
    transformers is not installed it says that nothing was compared. Models of more than a billion parameters are
    compared in float32 alone.

    Raises CheckpointError where the two differ by more than a thousandth of the largest logit (or of 1).
    """
    if find_spec("transformers") is None:
        return {"checked": False, "reason": "transformers is not installed"}
    transformers: Any = import_module("transformers")
    config = model.config
    assert config.vocab_size is not None and config.max_len is not None, "the config is not resolved"
    shape = (_ROWS, min(config.max_len, _MAX_TOKENS))
    tokens = torch.randint(config.vocab_size, shape, generator=torch.Generator().manual_seed(_SEED))
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    dtypes = [torch.float64, torch.float32] if n_parameters <= _FLOAT64_PARAMETERS else [torch.float32]
    differences: dict[str, float] = {}
    largest = 0.0
    for dtype in dtypes:
        expected = _oracle_logits(folder, tokens, dtype)
        found = copy.deepcopy(model).to(device="cpu", dtype=dtype).eval()(tokens).logits
        largest = max(1.0, float(expected.abs().max()))
        differences[str(dtype).removeprefix("torch.")] = _check(float((found - expected).abs().max()), largest)
    return {
        "checked": True,
        "against": f"transformers {transformers.__version__}",
        "tokens": {"rows": shape[0], "length": shape[1], "seed": _SEED},
        "largest_difference": differences,
        "largest_logit": float(expected.abs().max()),
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


def _check(difference: float, largest: float) -> float:
    if not difference <= _REFUSED_SHARE * largest:
        raise CheckpointError(
            f"the model's logits differ from transformers' by {difference:.3g} (largest logit {largest:.3g}): "
            "it was not written"
        )
    return difference


def _oracle_logits(folder: Path, tokens: Tensor, dtype: torch.dtype) -> Tensor:
    transformers: Any = import_module("transformers")
    with _quiet():
        oracle = transformers.GPT2LMHeadModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        logits: Tensor = oracle.to(dtype).eval()(tokens).logits
    return logits


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
