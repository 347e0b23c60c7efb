"""What of a text is held out, as far as the settings tell, and what that leaves to choose by."""

from typing import Literal

from sublayer.config.data import DataConfig
from sublayer.config.recipe import Recipe
from sublayer.config.text.corpora import PUBLISHED_SPLITS, source_names
from sublayer.config.text.split import parse_split
from sublayer.errors import ConfigError

NO_TEST = (
    "holds out no test split, which a comparison scores: "
    "give data.split = 98/1/1, or data.test_path"
)


def holds_out(data: DataConfig, split: Literal["valid", "test"]) -> bool:
    """Return whether a text may have a validation or a test split.

    Pairs always have; where ``data.split`` gives it nothing, only a path or a publisher does.
    """
    if data.is_parallel or data.split is None:
        return True
    own_path = data.valid_path if split == "valid" else data.test_path
    if own_path is not None:
        return True
    _, valid, test = parse_split(data.split)
    share = valid if split == "valid" else test
    return share > 0 or any(name in PUBLISHED_SPLITS for name in source_names(data.corpus))


def check_chosen(recipe: Recipe) -> None:
    """Raise ConfigError where a validation split is to choose the checkpoint, and there is none."""
    best_by = recipe.train.best_by
    if best_by != "last" and not holds_out(recipe.data, "valid"):
        raise ConfigError(
            f"train.best_by = {best_by} needs a validation split, of which data.split = "
            f"{recipe.data.split} has none: give train.best_by = last, or a split such as 98/1/1"
        )
