"""Recipes and studies have the settings that their sources publish, and say which they lack."""

import itertools

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.sgd import SgdConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.estimate.cost import count_parameters
from sublayer.study.definition import load_study
from sublayer.study.metrics import study_metrics
from sublayer.training.schedule import learning_rate

CHARACTERS = {
    "char-t64": "enwik8",
    "char-t12": "enwik8",
    "char-t64-text8": "text8",
    "char-t12-text8": "text8",
    "char-t64-lm1b": "lm1b",
}


@pytest.mark.parametrize("name", CHARACTERS)
def test_a_character_transformer_is_chosen_behind_the_full_context(name: str) -> None:
    recipe = load_recipe(name).recipe
    assert recipe.data.corpus == CHARACTERS[name]
    assert (recipe.train.evaluate_stride, recipe.train.evaluate_tokens) == (1, 32_768)
    assert (recipe.train.steps, recipe.model.dropout_ffn) == (
        (8_000_000, 0.2) if "t12" in name else (4_000_000, 0.55)
    )
    assert isinstance(recipe.optimizer, SgdConfig)
    assert recipe.optimizer.clip_norm == 0.0


def test_why_losses_are_not_added_over_positions_is_said() -> None:
    loaded = load_recipe("char-t64").recipe
    assert loaded.objective.position_reduction == "mean"
    assert "diverge at the published rate" in loaded.source
    added = load_recipe("char-t64", ["objective.position_reduction=sum"]).recipe
    assert added.objective.position_reduction == "sum"


def test_no_gradient_of_the_small_character_transformer_is_cut() -> None:
    assert load_recipe("char-small").recipe.optimizer.clip_norm == 0.0
    for name in ("char-ablation", "char-context", "char-depth"):
        for arm in load_study(name, scale="cpu").arms:
            assert arm.loaded.recipe.optimizer.clip_norm == 0.0


@pytest.mark.parametrize("name", ["char-ablation", "char-context", "char-depth"])
def test_the_papers_figures_are_of_text8s_validation_split_and_the_full_context(name: str) -> None:
    study = load_study(name, scale="paper")
    assert {arm.loaded.recipe.data.corpus for arm in study.arms} == {"text8"}
    assert (study.scoring.split, study.scoring.stride, study.scoring.tokens) == ("valid", 1, None)


def test_the_ablation_of_positions_has_interleaved_sinusoids() -> None:
    for scale in ("paper", "cpu"):
        arms = {
            arm.name: arm.loaded.recipe for arm in load_study("char-ablation", scale=scale).arms
        }
        model = arms["sinusoids at the input"].model
        assert (model.positions, model.sinusoids) == ("sinusoidal", "interleaved")


@pytest.mark.parametrize("scale", ["cpu", "cpu-all"])
def test_depth_is_tried_at_tuned_rates_with_norms_after_and_from_a_plain_start(scale: str) -> None:
    study = load_study("char-depth", scale=scale)
    assert study.tune == ("optimizer.lr=0.0125,0.025,0.05,0.1",)
    found = set()
    for arm in study.arms:
        recipe = arm.loaded.recipe
        model = recipe.model
        has_losses = recipe.objective.auxiliary == "layers"
        found.add((model.n_layers, model.norm_order, model.init, has_losses))
        assert recipe.train.steps // recipe.train.evaluate_steps == 20
        assert recipe.optimizer.clip_norm == 0.0
        # Ten times the bytes of the record that clipped.
        assert recipe.train.steps * recipe.train.batch_sequences * recipe.data.context >= 5_120_000
    kinds = [("post", "normal")]
    if scale == "cpu-all":
        kinds = list(itertools.product(("pre", "post"), ("scaled", "normal")))
    expected = itertools.product((6, 24), kinds, (True, False))
    assert found == {(depth, *kind, losses) for depth, kind, losses in expected}


@pytest.mark.parametrize("scale", ["paper", "cpu", "cpu-all"])
def test_depth_is_decided_by_the_interaction_of_losses_and_depth(scale: str) -> None:
    study = load_study("char-depth", scale=scale)
    hypothesis = study.question.hypothesis
    assert hypothesis is not None
    arms = {arm.name: arm.loaded.recipe for arm in study.arms}
    deepest = max(arms[name].model.n_layers for name in hypothesis.contrast)
    for name, weight in hypothesis.contrast.items():
        recipe = arms[name]
        is_deep = recipe.model.n_layers == deepest
        has_losses = recipe.objective.auxiliary == "layers"
        assert weight == (1 if is_deep == has_losses else -1)
        assert recipe.model.norm_order == "post"


def test_every_arm_of_the_demo_has_its_best_rate_of_several() -> None:
    study = load_study("demo")
    (tuned,) = study.tune
    field, _, rates = tuned.partition("=")
    assert field == "optimizer.lr"
    assert len(rates.split(",")) >= 3


def test_the_tiny_translator_has_the_settings_of_its_source() -> None:
    recipe = load_recipe("multi30k-tiny").recipe
    optimizer, model = recipe.optimizer, recipe.model
    assert (optimizer.lr, optimizer.warmup_steps, optimizer.clip_norm) == (5e-3, 2000, 25)
    assert (model.dropout, model.dropout_attention, model.dropout_ffn) == (0.3, 0, 0)
    assert (recipe.train.steps, recipe.train.batch_tokens) == (8000, 4096)
    assert "precision by the machine" in recipe.source
    assert "batch of one device instead of two" in recipe.source


@pytest.mark.parametrize("scale", ["paper", "released"])
def test_translations_of_wmt14_are_scored_with_compounds_split(scale: str) -> None:
    study = load_study("macaron-translation", scale=scale)
    assert "bleu_compounds" in [metric.name for metric in study_metrics(study)]


def test_splittings_are_compared_with_the_same_list_in_whole_steps() -> None:
    for scale in ("paper", "cpu"):
        study = load_study("splitting", scale=scale)
        for arm in ("Strang: FFN outside (Macaron)", "Strang: attention outside"):
            assert study.against[arm].endswith("outside, whole steps")
        assert study.against["Yoshida, fourth order"] == "Yoshida's list, whole steps"


def test_half_of_the_text_and_all_of_it_keep_their_last_checkpoint() -> None:
    for arm in load_study("albert-data", scale="cpu").arms:
        assert arm.loaded.recipe.train.best_by == "last"


@pytest.mark.parametrize("name", ["albert-depth", "albert-width"])
def test_a_study_whose_runs_went_on_from_others_says_that_its_own_do_not(name: str) -> None:
    assert "random weights" in load_study(name).source


def test_gpt1_is_as_its_paper_and_its_code_say() -> None:
    recipe = load_recipe("gpt1").recipe
    model = resolve_model(recipe.model, vocab_size=40_478, context=recipe.data.context)
    # Of the release: tokens, positions and 12 blocks (openai/finetune-transformer-lm).
    assert count_parameters(model).total == 31_087_104 + 393_216 + 85_054_464 == 116_534_784
    assert (model.d_head, model.d_ff, model.max_len) == (64, 3072, 512)
    assert (model.norm_order, model.final_norm, model.norm_eps) == ("post", "none", 1e-5)
    assert (model.ffn, model.gelu, model.positions) == ("gelu", "tanh", "learned")
    assert (model.init, model.init_std, model.bias) == ("normal", 0.02, True)
    assert (model.softmax, model.tie_embeddings, model.head_bias) == ("all", True, False)
    assert model.dropout_embedding_of == "matrix"
    assert model.dropout == model.dropout_attention == model.dropout_embedding == 0.1
    assert (recipe.train.batch_sequences, recipe.train.epochs) == (64, 100)
    optimizer = recipe.optimizer
    assert isinstance(optimizer, AdamWConfig)
    assert (optimizer.form, optimizer.betas, optimizer.eps) == ("gpt1", (0.9, 0.999), 1e-8)
    assert (optimizer.weight_decay, optimizer.decay_vectors, optimizer.clip_norm) == (
        0.01,
        False,
        1,
    )
    rates = [learning_rate(optimizer, step, 200_000) for step in (0, 1000, 2000, 100_000, 200_000)]
    assert rates == pytest.approx([0.0, 1.25e-4, 2.5e-4, 1.25e-4, 0.0], abs=1e-12)


def test_gpt1_says_what_stands_for_its_tokenizer() -> None:
    recipe = load_recipe("gpt1").recipe
    assert (recipe.data.tokenizer, recipe.data.vocab_size) == ("gpt1-bpe", 40_478)
    assert recipe.data.normalization is None  # which is the published
    assert "its tokenizer is trained on the text" in recipe.source
