"""The translators' recipes have what their scripts and their text say, and the studies use them."""

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.optimizers.adam import AdamConfig, AdamWConfig
from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.resources import Resources
from sublayer.study.definition import load_study
from tests.breadth import rows

TRANSLATORS = [
    f"{size}-{kind}{text}"
    for size in ("iwslt14-small", "wmt14-base", "wmt14-big")
    for kind in ("transformer", "macaron")
    for text in ("", "-paper")
]
PLENTY = Resources("cpu", memory_bytes=1 << 60, disk_bytes=1 << 60, has_fast_bfloat16=True, cores=1)


@pytest.mark.parametrize("name", rows([*TRANSLATORS, "multi30k-tiny"], 4))
def test_a_translator_has_fairseqs_batches_and_checkpoints_to_take_the_mean_of(name: str) -> None:
    recipe = load_recipe(name).recipe
    assert (recipe.data.batch_multiple, recipe.data.batch_order) == (8, "once")
    assert recipe.model.zero_padding
    assert recipe.model.vocab_multiple == 8
    assert recipe.train.keep_checkpoints == 20


@pytest.mark.parametrize("name", rows(TRANSLATORS, 4))
def test_words_are_escaped_as_by_the_script_that_prepares_them(name: str) -> None:
    data = load_recipe(name).recipe.data
    assert data.moses_escapes
    is_wmt = name.startswith("wmt14")
    assert (data.moses, data.moses_hyphens) == (
        ("normalize", True) if is_wmt else ("tokenize", False)
    )
    # clean-corpus-n.perl drops pairs of more than nine words to one where a script gives no ratio.
    limits = (80, 9.0) if is_wmt else (175, 1.5)
    assert (data.max_words, data.max_words_ratio) == limits
    n_parts = {"iwslt14-small": 1, "wmt14-base": 4, "wmt14-big": 64}
    corpus, size, *_ = name.split("-")
    assert data.batch_parts == n_parts[f"{corpus}-{size}"]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_text_has_vaswanis_optimizer_and_the_code_its_own(name: str) -> None:
    recipe = load_recipe(name).recipe
    optimizer, data = recipe.optimizer, recipe.data
    assert isinstance(optimizer, AdamConfig | AdamWConfig)
    is_big = name.startswith("wmt14-big")
    if name.endswith("-paper"):
        lr = 3e-3 if is_big else (512 * 4000) ** -0.5
        assert optimizer.lr == pytest.approx(lr, rel=1e-6)
        assert (optimizer.warmup_steps, optimizer.eps, optimizer.warmup_init_lr) == (
            4000,
            1e-9,
            None,
        )
        assert data.vocab_size == (37_000 if "wmt14" in name else 10_000)
        assert data.merges is None
        return
    assert optimizer.lr == (3e-3 if is_big else 1.5e-3)
    assert (optimizer.warmup_steps, optimizer.eps, optimizer.warmup_init_lr) == (8000, 1e-8, 1e-7)
    assert data.merges == (32_764 if "wmt14" in name else 10_000)
    assert data.vocab_size is None


@pytest.mark.parametrize(("scale", "ending"), [("paper", "-paper"), ("released", "")])
def test_macaron_translation_has_the_recipes_of_the_text_and_those_of_the_code(
    scale: str, ending: str
) -> None:
    arms = load_study("macaron-translation", scale=scale).arms
    assert [arm.loaded.recipe.model.d_ff for arm in arms] == [
        *((2048, 1024) if ending else (1024, 512)),
        *(2048, 1024, 4096, 2048),
    ]
    hyphens = [arm.loaded.recipe.data.moses_hyphens for arm in arms]
    assert hyphens == [False, False, True, True, True, True]


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_no_width_of_splitting_is_an_accident_of_matching(scale: str) -> None:
    study = load_study("splitting", scale=scale)
    plan = make_plan(study.arms, study.match, PLENTY)
    first, *others = plan.arms
    for arm in others:
        assert arm.parameters.total == pytest.approx(first.parameters.total, rel=1e-3)
        # As its caveat says.
        assert 0.955 < arm.flops_per_token / first.flops_per_token < 1.095, arm.name
    width = study.arms[0].loaded.recipe.model.d_ff
    widths = {first.name: width}
    for arm in others:
        assert arm.match is not None
        (solved,) = arm.match.overrides or (f"model.d_ff={width}",)
        widths[arm.name] = int(solved.removeprefix("model.d_ff="))
    for name, solved_width in widths.items():
        expected = width / 2 if "FFN outside" in name else width
        assert 0.7 * expected < solved_width < 1.25 * expected, name
    for split, whole in study.against.items():
        assert widths[split] == widths[whole]
