"""Models of the Hugging Face hub by name, fetched once by ``huggingface_hub``."""

import re
from importlib import import_module
from pathlib import Path

from sublayer.errors import CheckpointError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_WANTED = ("*.json", "*.safetensors", "*.txt", "*.spm", "*.model")
"""What importing reads: configs, weights, tokenizers. No pickles."""


def is_hub_name(text: str) -> bool:
    """Return whether a text can be the name of a model on the hub: ``gpt2``, ``owner/name``."""
    return _NAME.fullmatch(text) is not None


def fetch_model(name: str) -> Path:
    """Fetch a model's files into the hub's own cache, once, and return their folder.

    Progress goes to standard error. Raises CheckpointError where huggingface_hub is not installed,
    the hub has no such model, or it cannot be reached.
    """
    by_hand = (
        f"where there is a network, `hf download {name} --local-dir {name}` fetches it; then "
        "import that folder"
    )
    try:
        hub = import_module("huggingface_hub")
        errors = import_module("huggingface_hub.errors")
    except ModuleNotFoundError:
        raise CheckpointError(
            f"there is no folder {name}, and to fetch a model of that name from the Hugging Face "
            f"hub huggingface_hub is needed: pip install huggingface_hub; or {by_hand}"
        ) from None
    known = (OSError, ValueError, RuntimeError, errors.HfHubHTTPError)
    try:
        folder: str = hub.snapshot_download(name, allow_patterns=list(_WANTED))
    except errors.RepositoryNotFoundError:
        raise CheckpointError(
            f"there is no folder {name}, and the Hugging Face hub has no model of that name that "
            "all may read: look for its name on huggingface.co/models"
        ) from None
    except known as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(
            f"there is no folder {name}, and it cannot be fetched from the Hugging Face hub "
            f"({reason}): {by_hand}"
        ) from error
    return Path(folder)
