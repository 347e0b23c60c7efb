"""A recipe: everything that a run is made of."""

from pydantic import Field

from sublayer.config.data import DataConfig
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.objectives.kinds import ObjectiveConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.config.table import Table, field
from sublayer.config.train import InitConfig, TrainConfig


class Recipe(Table):
    """A model, what it learns from, and how: the tables of a recipe file."""

    title: str = field("", "What it is, in a line.")
    source: str = field("", "Paper and section it follows.")
    cost: str = field("", "What it takes to run, in words.")
    model: ModelConfig = Field(default_factory=ModelConfig, description="What is computed.")
    data: DataConfig = Field(default_factory=DataConfig, description="What it is computed on.")
    objective: ObjectiveConfig = Field(
        default_factory=CausalObjective, description="What the model is trained to do."
    )
    optimizer: OptimizerConfig = Field(
        default_factory=AdamWConfig, description="How weights change."
    )
    train: TrainConfig = Field(
        default_factory=TrainConfig, description="How long, in what batches, what is kept."
    )
    init: InitConfig = Field(default_factory=InitConfig, description="What training starts from.")
