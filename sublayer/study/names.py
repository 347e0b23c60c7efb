"""The names of comparisons, and of their folders, after what is compared."""

import hashlib
import re
from collections.abc import Iterable

LONGEST_PART = 60
"""Characters of a name that a folder is called after."""
_LONGEST = 40


def name_folder(recipe: str, varied: Iterable[str]) -> str:
    """Name the folder of a recipe whose fields vary: ``gpt-ffn``; the recipe alone where none do.

    Fields that would make it too long are left out, the last first.
    """
    return _joined([recipe, *(field.rpartition(".")[2] for field in varied)])


def name_arms(names: Iterable[str]) -> str:
    """Name a comparison of arms with names of their own: ``gpt-macaron-modern``."""
    return _joined(names)


def in_path(name: str) -> str:
    """Return what any system takes for a folder's name, with all else of a name as dashes.

    It may be empty, and that of two names the same.
    """
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", name).strip("-.")


def folder_part(name: str) -> str:
    """Return what a folder is called after a name: a long one is cut, and ends with its digest."""
    part = in_path(name)
    if len(part) <= LONGEST_PART:
        return part
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{part[: LONGEST_PART - 9]}-{digest}"


def _joined(parts: Iterable[str]) -> str:
    first, *others = parts
    name = first[:_LONGEST]
    for part in others:
        if len(name) + 1 + len(part) > _LONGEST:
            return f"{name}-and-more"
        name = f"{name}-{part}"
    return name
