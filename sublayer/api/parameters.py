"""Parameters that several public functions declare alike."""

from typing import Annotated, Literal

from sublayer.config.limits import (
    LARGEST_FACTOR,
    LARGEST_PENALTY,
    LARGEST_SEED,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_FINETUNINGS,
    MOST_JOBS,
    MOST_SEEDS,
    WIDEST_BEAM,
)
from sublayer.options import Argument, Option, PathText

Recipe = Annotated[
    PathText,
    Argument(
        "A recipe's name (see `sublayer recipes`), a .toml file, or a run.",
        metavar="RECIPE",
        complete="recipes",
    ),
]
Device = Annotated[
    str | None,
    Option(
        "Where to compute: cpu, cuda, cuda:1 ... Default: a GPU if there is one.",
        metavar="DEVICE",
        complete="devices",
    ),
]
Model = Annotated[
    PathText,
    Argument(
        "A run, a checkpoint, or the folder of an imported model.", metavar="RUN", complete="runs"
    ),
]
Temperature = Annotated[
    float | None,
    Option(
        "Below 1 is more certain, above 1 more varied; 0 is greedy. Default: 1.",
        least=0.0,
        most=LARGEST_FACTOR,
    ),
]
TopK = Annotated[
    int | None,
    Option("Sample among the k most probable tokens.", least=1, most=LARGEST_VOCABULARY),
]
TopP = Annotated[
    float | None,
    Option(
        "Sample among the fewest tokens whose probabilities reach p (nucleus).",
        least=0.0,
        most=1.0,
    ),
]
Seed = Annotated[
    int | None, Option("Random seed for sampling. Default: 0.", least=0, most=LARGEST_SEED)
]
Beam = Annotated[
    int | None,
    Option(
        "Beam size, where gaps are filled or answers written; the most probable hypothesis is "
        "printed. Default: 1, greedy, unless a sampling option is given.",
        least=1,
        most=WIDEST_BEAM,
    ),
]
SearchBeam = Annotated[
    int | None,
    Option(
        "Beam size; 1 is greedy. Default: the run's objective.beam, 5.", least=1, most=WIDEST_BEAM
    ),
]
LengthRule = Annotated[
    Literal["fairseq", "gnmt"] | None,
    Option(
        "What divides a hypothesis's log probability: "
        "n^p of its n tokens (fairseq), or ((5 + n) / 6)^p (gnmt). "
        "Default: the run's objective.length_rule, fairseq."
    ),
]
LengthPenalty = Annotated[
    float | None,
    Option(
        "The exponent p: 0 favours short ones, more longer ones. Default: "
        "the run's objective.length_penalty, 1.",
        least=-LARGEST_PENALTY,
        most=LARGEST_PENALTY,
    ),
]
MaxLengthRatio = Annotated[
    float | None,
    Option(
        "Maximum length of a translation: RATIO x the source's tokens ...",
        alias="--longest-share",
        metavar="RATIO",
        least=0.0,
        most=LARGEST_FACTOR,
    ),
]
MaxLengthOffset = Annotated[
    float | None,
    Option(
        "... + OFFSET. Default: 200.",
        alias="--longest-more",
        metavar="OFFSET",
        least=-LONGEST_WINDOW,
        most=LONGEST_WINDOW,
    ),
]
Average = Annotated[
    int | None,
    Option("Average the weights of the run's N newest checkpoints.", least=1, most=10_000),
]
Match = Annotated[
    Literal["parameters", "flops", "time", "none"] | None,
    Option(
        "The budget that every arm shares with the baseline. Default: the study's, or parameters."
    ),
]
Seeds = Annotated[
    int | None,
    Option(
        "Train each arm with the seeds 0 to N - 1: at least 3, or 1 for values without a "
        "verdict. Default: the study's, or 5.",
        least=1,
        most=MOST_SEEDS,
    ),
]
Until = Annotated[
    Literal["decided"] | None,
    Option(
        "Add seeds until an arm is decided: better, worse, or no difference that matters. It "
        "then stops; intervals hold at every look.",
        metavar="decided",
    ),
]
SeedsAtMost = Annotated[
    int | None,
    Option("With --until decided: the most seeds of an arm.", least=1, most=MOST_SEEDS),
]
Margin = Annotated[
    str | float | None,
    Option(
        "The smallest difference that matters, either way, in the unit of differences, such "
        'as "0.01 bits per byte" or 0.01. Default: the study\'s, or none.',
        metavar="AMOUNT",
    ),
]
TuningSeeds = Annotated[
    int | None,
    Option(
        "With --tune: runs of each trial, of whose scores the mean chooses. Default: 1.",
        least=1,
        most=MOST_SEEDS,
    ),
]
Extend = Annotated[
    int | None,
    Option(
        "With --tune: where an arm's best value lies at an edge of the grid, every arm tries "
        "the next one beyond, N times at most.",
        least=1,
        most=20,
    ),
]
FirstSeed = Annotated[
    int | None,
    Option("Train with the seeds from S on. Default: 0.", metavar="S", least=0, most=LARGEST_SEED),
]
FirstTuningSeed = Annotated[
    int | None,
    Option(
        "With --tune: the first seed of a trial's runs, which are never seeds that are "
        "compared. Default: 1000.",
        metavar="S",
        least=0,
        most=LARGEST_SEED,
    ),
]
Scale = Annotated[
    str | None,
    Option(
        "The scale at which a study is run, such as paper or cpu. Default: paper, else cpu, "
        "else its first.",
        metavar="NAME",
        complete="scales",
    ),
]
Finetunings = Annotated[
    int | None,
    Option(
        "Of a study with stages: fine-tune on each task so often under each pre-training. "
        "Default: the study's, or 1.",
        least=1,
        most=MOST_FINETUNINGS,
    ),
]
TaskData = Annotated[
    PathText | None,
    Option(
        "Of a study with stages: the folder of the tasks' files. Default: the cache, into "
        "which they are downloaded where they are missing.",
        metavar="DIR",
    ),
]
Jobs = Annotated[
    int,
    Option(
        "Runs trained at the same time, each in a process of its own with its share of the "
        "threads.",
        least=1,
        most=MOST_JOBS,
    ),
]
