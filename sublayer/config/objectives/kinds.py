"""``[objective]``: what the model is trained to do; a union by ``kind``."""

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from sublayer.config.objectives.base import ObjectiveTable
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.config.objectives.span import SpanObjective
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.objectives.translation import TranslationObjective

OBJECTIVES: dict[str, type[ObjectiveTable]] = {
    "causal": CausalObjective,
    "masked": MaskedObjective,
    "translation": TranslationObjective,
    "span": SpanObjective,
    "supervised": SupervisedObjective,
}
NEXT_TOKEN = CausalObjective()

if TYPE_CHECKING:
    # What is asked of an objective outside its own folder is what every objective can answer.
    ObjectiveConfig = ObjectiveTable
else:
    _AnyObjective = Union[tuple(OBJECTIVES.values())]  # noqa: UP007
    ObjectiveConfig = Annotated[_AnyObjective, Field(discriminator="kind")]
