"""Options of ``sublayer generate``: what is drawn or searched for, how, and where it ends."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from sublayer.config.limits import (
    LARGEST_FACTOR,
    LARGEST_SEED,
    LARGEST_VOCABULARY,
    MOST_ROWS,
    WIDEST_BEAM,
)
from sublayer.errors import ConfigError

PromptOption = Annotated[
    str,
    typer.Option(
        "--prompt", help="The text to continue, or, with gaps <extra_id_0> ..., to complete."
    ),
]
TokensOption = Annotated[
    int | None,
    typer.Option(
        "--tokens",
        min=1,
        max=1_000_000_000,
        help="Tokens to add. Default: 200, or what the targets of a run that fills gaps have.",
    ),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        min=0.0,
        max=LARGEST_FACTOR,
        help="Below 1 is more certain, above 1 more varied; 0 is greedy. Default: 1.",
    ),
]
TopKOption = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        min=1,
        max=LARGEST_VOCABULARY,
        help="Sample among the k most probable tokens.",
    ),
]
TopPOption = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        min=0.0,
        max=1.0,
        help="Sample among the fewest tokens whose probabilities reach p (nucleus).",
    ),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option("--stop", help="End where this text appears; it is left out. Repeatable."),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=LARGEST_SEED, help="Random seed for sampling. Default: 0."),
]
ContinuationsOption = Annotated[
    int,
    typer.Option(
        "--batch", min=1, max=MOST_ROWS, help="Number of continuations, sampled side by side."
    ),
]
SearchOption = Annotated[
    int | None,
    typer.Option(
        "--beam",
        min=1,
        max=WIDEST_BEAM,
        help="Beam size, where gaps are filled or answers written; the most probable hypothesis is "
        "printed. Default: 1, greedy, unless a sampling option is given.",
    ),
]
WindowOption = Annotated[
    Literal["exact", "rolling"] | None,
    typer.Option(
        "--window",
        help="Beyond the context: read all of it again for each token, "
        "or half of it again whenever it is full. Default: exact.",
    ),
]
PrecisionOption = Annotated[
    Literal["float32", "bfloat16"],
    typer.Option(
        "--precision",
        help="Precision of weights and arithmetic; bfloat16 is faster where models are wide.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """What is asked for; None is left to the kind of model."""

    prompt: str
    tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    stops: list[str]
    seed: int | None
    batch: int
    beam: int | None
    window: Literal["exact", "rolling"] | None
    as_json: bool

    def check(self) -> None:
        """Raise ConfigError for options of which one has no effect beside the other."""
        if self.temperature == 0.0 and self.batch > 1:
            raise ConfigError(
                f"--batch {self.batch} would give the same text {self.batch} times with "
                "--temperature 0: leave out one"
            )
        drawn = self.drawn_by
        if self.beam is not None and drawn is not None:
            raise ConfigError(
                f"--beam {self.beam} finds the most probable, and {drawn} is of what is drawn: "
                "leave out one"
            )

    @property
    def drawn_by(self) -> str | None:
        """Return the first option that asks for something drawn; None where there is none."""
        options = {
            "--temperature": self.temperature,
            "--top-k": self.top_k,
            "--top-p": self.top_p,
            "--seed": self.seed,
            "--batch": self.batch if self.batch > 1 else None,
        }
        given = (f"{name} {value:g}" for name, value in options.items() if value is not None)
        return next(given, None)
