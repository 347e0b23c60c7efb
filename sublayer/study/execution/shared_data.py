"""Data of runs that start from a model: prepared once for all that read the same."""

import json
from collections import OrderedDict

from sublayer.config.layering.paths import absolute_paths
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.runs.session import prepare_data
from sublayer.training.warm_start import Pretrained

_MOST = 8
"""Of what runs one after another need: each has a tokenizer of its own where arms differ."""


class SharedData:
    """The data of recipes, of which those that were asked for last are kept, ``most`` of them."""

    def __init__(self, most: int | None = _MOST) -> None:
        """Keep ``most`` at a time; None: all."""
        self._most = most
        self._kept: OrderedDict[str, Data] = OrderedDict()

    def of(self, recipe: Recipe) -> Data:
        """Prepare the data of a recipe, or return them. Raises as ``prepare_data`` does."""
        absolute = absolute_paths(recipe)
        pretrained = Pretrained(absolute.init)
        tokenizer = pretrained.tokenizer
        # How examples of tasks are written is the objective's; a text is the same for all.
        is_text = absolute.data.tasks is None
        tables = {"data"} if is_text else {"data", "objective"}
        content = absolute.model_dump(mode="json", include=tables)
        key = json.dumps([content, None if tokenizer is None else tokenizer.fingerprint])
        if key not in self._kept:
            self._kept[key] = prepare_data(absolute, pretrained)
        self._kept.move_to_end(key)
        while self._most is not None and len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[key]
