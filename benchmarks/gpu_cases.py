"""Trainings on a GPU: four models, their contestants, and the products of a step."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean

import contestants
import encoders
import gpu_translators
import span_models
from contestants import GPT2, OURS, X_TRANSFORMERS, Setup, Step
from encoders import EncoderSetup

from sublayer.config.recipe import ResolvedRecipe
from sublayer.model.estimates import flops_per_token

N_COUNTED = 16
"""Steps whose tokens and examples tell the mean length of an example."""


@dataclass(frozen=True)
class GpuSetup(Setup):
    """Training step of one contestant; ``compiles``: where the device has a compiler."""

    case: str = ""
    compiles: bool = False

    @property
    def is_compiled(self) -> bool:
        return self.compiles and self.device == "cuda"

    def __str__(self) -> str:
        return f"{super().__str__()}, {'compiled' if self.is_compiled else 'not compiled'}"


@dataclass(frozen=True)
class Case:
    """A model that is trained: who takes part, in which ways, and how it is built."""

    title: str
    sizes: tuple[str, str]
    """As it is measured, and as it is tried without a GPU."""
    dropout: float
    ways: Mapping[str, tuple[tuple[str, bool], ...]]
    """Of each contestant its variants, and whether each is compiled; the best one counts."""
    build: Callable[[GpuSetup], Step]
    recipe: Callable[[GpuSetup], ResolvedRecipe]
    n_examples: Callable[[GpuSetup, int], int]
    """Counts the examples of a step; an example reads and writes what an objective says."""
    mean_length: Callable[[GpuSetup], float]
    """Tokens of an example, by which its products are counted."""

    def setups(self, name: str, device: str, *, is_dry: bool) -> list[GpuSetup]:
        """List all ways in which contestants run it: in bf16, but for a dry run."""
        size = self.sizes[is_dry]
        return [
            GpuSetup(
                contestant,
                size,
                self.dropout,
                "float32" if is_dry else "bfloat16",
                variant,
                device,
                case=name,
                compiles=compiles,
            )
            for contestant, ways in self.ways.items()
            for variant, compiles in ways
        ]

    def flops_per_counted_token(self, setup: GpuSetup) -> float:
        """Count the operations of training for each token that speed is measured in."""
        recipe = self.recipe(setup)
        step = self.build(setup)
        length = round(self.mean_length(setup))
        of_example = flops_per_token(recipe.model, length, recipe.objective) * length
        steps = range(N_COUNTED)
        n_examples = fmean(self.n_examples(setup, each) for each in steps)
        return of_example * n_examples / fmean(step.n_tokens(each) for each in steps)


def _as_encoder(setup: GpuSetup) -> EncoderSetup:
    fields = asdict(setup)
    compiles = fields.pop("compiles")
    del fields["case"]
    return _COMPILED[compiles](**fields, family="bert")


@dataclass(frozen=True)
class _CompiledEncoder(EncoderSetup):
    @property
    def is_compiled(self) -> bool:
        return self.device == "cuda"


@dataclass(frozen=True)
class _PlainEncoder(EncoderSetup):
    @property
    def is_compiled(self) -> bool:
        return False


_COMPILED = {True: _CompiledEncoder, False: _PlainEncoder}


def _mean_encoded(setup: GpuSetup) -> float:
    step = encoders.build_encoder_step(_as_encoder(setup))
    n_tokens = fmean(step.n_tokens(each) for each in range(N_COUNTED))
    return n_tokens / encoders.SIZES[setup.size].sequences


def _mean_target(setup: GpuSetup) -> float:
    pairs = gpu_translators.RandomPairs(gpu_translators.SIZES[setup.size])
    steps = range(N_COUNTED)
    return sum(map(pairs.n_tokens, steps)) / sum(map(pairs.n_pairs, steps))


CASES = {
    "gpt2": Case(
        title="GPT-2 small",
        sizes=("gpt2", "dry"),
        dropout=0.0,
        ways={
            OURS: (("", True),),
            GPT2: (("sdpa", True),),
            X_TRANSFORMERS: (("flash", True),),
        },
        build=contestants.build_step,
        recipe=contestants.resolved_recipe,
        n_examples=lambda setup, _: contestants.SIZES[setup.size].sequences,
        mean_length=lambda setup: contestants.SIZES[setup.size].context,
    ),
    "bert": Case(
        title="BERT base",
        sizes=("base", "dry"),
        dropout=0.1,
        # Its number of predicted tokens differs from step to step: ours is not compiled.
        ways={OURS: (("", False),), encoders.peer("bert"): (("sdpa", False), ("sdpa", True))},
        build=lambda setup: encoders.build_encoder_step(_as_encoder(setup)),
        recipe=lambda setup: encoders.encoder_recipe(_as_encoder(setup)),
        n_examples=lambda setup, _: encoders.SIZES[setup.size].sequences,
        mean_length=_mean_encoded,
    ),
    "t5": Case(
        title="T5 base",
        sizes=("base", "dry"),
        dropout=0.0,
        ways={OURS: (("", True),), span_models.PEER: (("sdpa", True),)},
        build=span_models.build_span_step,
        recipe=span_models.span_recipe,
        n_examples=lambda setup, _: span_models.SIZES[setup.size].sequences,
        mean_length=lambda setup: span_models.SIZES[setup.size].context,
    ),
    "translator": Case(
        title="The base translator of WMT14",
        sizes=("base", "dry"),
        dropout=0.1,
        # Its lengths differ from step to step: ours is not compiled.
        ways={OURS: (("", False),), gpu_translators.PEER: (("", False), ("", True))},
        build=gpu_translators.build_translator_step,
        recipe=gpu_translators.translator_recipe,
        n_examples=lambda setup, step: gpu_translators.RandomPairs(
            gpu_translators.SIZES[setup.size]
        ).n_pairs(step),
        mean_length=_mean_target,
    ),
}
