"""Models of the Hugging Face hub by name, fetched once by ``huggingface_hub``."""

import re
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

    Progress goes to standard error. Raises CheckpointError where the hub has no such model, or it
    cannot be reached.
    """
    from huggingface_hub import errors, snapshot_download

    by_hand = (
        f"where there is a network, `hf download {name} --local-dir {name}` fetches it; then "
        "import that folder"
    )
    known = (OSError, ValueError, RuntimeError, errors.HfHubHTTPError)
    try:
        return Path(snapshot_download(name, allow_patterns=list(_WANTED)))
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
