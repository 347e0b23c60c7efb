"""Data of runs that start from a model: prepared once for all that read the same."""

import json
from collections import OrderedDict

from sublayer.config.layering.paths import absolute_paths
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.runs.session import prepare_data
from sublayer.training.warm_start import Pretrained

_MOST = 8


class SharedData:
    """The data of recipes, of which those that were asked for last are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Data] = OrderedDict()

    def of(self, recipe: Recipe) -> Data:
        """Prepare the data of a recipe, or return them. Raises as ``prepare_data`` does."""
        absolute = absolute_paths(recipe)
        pretrained = Pretrained(absolute.init)
        tokenizer = pretrained.tokenizer
        tables = absolute.model_dump(mode="json", include={"data", "objective"})
        key = json.dumps([tables, None if tokenizer is None else tokenizer.fingerprint])
        if key not in self._kept:
            self._kept[key] = prepare_data(absolute, pretrained)
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return self._kept[key]
