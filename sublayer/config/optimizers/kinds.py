"""``[optimizer]``: a union by ``kind``."""

from typing import Annotated

from pydantic import Field

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamConfig, AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.optimizers.sgd import SgdConfig
from sublayer.config.table import Table

OptimizerConfig = Annotated[
    SgdConfig | AdamConfig | AdamWConfig | LambConfig | AdafactorConfig,
    Field(discriminator="kind"),
]
OPTIMIZERS: dict[str, type[Table]] = {
    "sgd": SgdConfig,
    "adam": AdamConfig,
    "adamw": AdamWConfig,
    "lamb": LambConfig,
    "adafactor": AdafactorConfig,
}
