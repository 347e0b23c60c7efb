"""Shipped recipes and studies have published settings; what they set and cost has its effect."""

import itertools
import re

import pytest

from sublayer.config import layers
from sublayer.config.layers import shipped_recipes
from sublayer.config.load import load_recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.rules import is_idle
from sublayer.model.estimates import count_parameters
from sublayer.study.budget import TOLERANCE, Resources, expected_vocabulary
from sublayer.study.columns import study_metrics
from sublayer.study.cost_plan import make_plan
from sublayer.study.definition import load_study
from sublayer.training.step import learning_rate

PLENTY = Resources("cpu", 1 << 60, 1 << 60, has_fast_bfloat16=True, cores=1)


def parameters(name):
    recipe = load_recipe(name).recipe
    size, context = expected_vocabulary(recipe).size, recipe.data.context
    return count_parameters(resolve_model(recipe.model, vocab_size=size, context=context)).total


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_loads_sets_only_effective_fields_and_costs_what_it_says(name):
    source = layers.find_source(name)
    content = layers.read_toml(source.path)
    assert {"title", "source", "cost"} <= set(content)
    recipe = load_recipe(name).recipe
    base = load_recipe(content["extends"]).recipe if "extends" in content else None
    for key, value in layers.layer_of(content, source.origin).values.items():
        if "." in key:
            table, _, field = key.partition(".")
            assert not is_idle(key, recipe), key
            assert base is None or getattr(getattr(base, table), field) != value, key
    said = re.search(r"([\d.]+) M parameters", recipe.cost)
    assert said is None or float(said[1]) == round(parameters(name) / 1e6, 1)


def test_every_recipe_belongs_to_a_group():
    groups = layers.grouped_recipes()
    listed = sorted(each.name for group in groups.values() for each in group)
    assert layers.OTHERS not in groups and listed == list(shipped_recipes())
    # Variants have as many parameters as gpt.
    counts = [parameters(name) for name in ("llama-2023", "macaron")]
    assert counts == pytest.approx([parameters("gpt")] * 2, rel=0.025)


ALBERT = """data.split=100/0/0 data.watch=["squad-dev","race-dev"] train.best_by=last
    optimizer.warmup=albert optimizer.warmup_steps=3125 optimizer.lr=0.00176 """
# 199 to 1, of which the one chooses nothing.
MACARON_BERT = "data.split=99.5/0.5/0 train.best_by=last "
WARMUP = "optimizer.warmup=albert optimizer.warmup_steps=10000 optimizer.lr=1e-4"
CHARACTERS = """train.evaluate_stride=1 train.evaluate_tokens=32768 optimizer.kind=sgd
    optimizer.clip_norm=0.0 objective.position_reduction=mean """
FAIRSEQ = """data.batch_multiple=8 data.batch_order=once data.moses_escapes=true
    model.zero_padding=true model.vocab_multiple=8 train.keep_checkpoints=20 """
IWSLT = f"""{FAIRSEQ} data.moses=tokenize data.moses_hyphens=false data.batch_parts=1
    data.max_words=175 data.max_words_ratio=1.5 """
# clean-corpus-n.perl drops pairs of more than nine words to one where a script gives no ratio.
WMT = f"{FAIRSEQ} data.moses=normalize data.moses_hyphens=true data.max_words=80 "
BASE = f"{WMT}data.batch_parts=4 "
CODE = "optimizer.warmup_steps=8000 optimizer.eps=1e-8 optimizer.warmup_init_lr=1e-7 "
TEXT = "optimizer.warmup_steps=4000 optimizer.eps=1e-9 "
VASWANI = f"optimizer.lr={(512 * 4000) ** -0.5:.5e}"
PUBLISHED = {
    "albert-base-v2": ALBERT + "train.steps=10000000 model.dropout=0.0",
    "albert-xxlarge": ALBERT + "train.steps=1500000 model.dropout=0.0",
    "albert-xxlarge-125k": ALBERT + "train.steps=125000 model.dropout=0.1",
    "albert-xxlarge-v2": ALBERT + "train.steps=3000000 model.dropout=0.0",
    "macaron-bert-base": MACARON_BERT + WARMUP,
    # 6,400 tokens on each of 4 GPUs, 5 times.
    "macaron-bert-base-released": MACARON_BERT
    + f"""train.batch_tokens={6400 * 4 * 5}
        data.batch_parts=20 data.batch_multiple=8 model.sinusoids=fairseq model.first_position=2
        model.zero_padding=true optimizer.warmup=ordinary optimizer.warmup_steps=0""",
    "char-t64": CHARACTERS + "data.corpus=enwik8 train.steps=4000000 model.dropout_ffn=0.55",
    "char-t64-lm1b": CHARACTERS + "data.corpus=lm1b train.steps=4000000 model.dropout_ffn=0.55",
    "char-t12-text8": CHARACTERS + "data.corpus=text8 train.steps=8000000 model.dropout_ffn=0.2",
    "iwslt14-small-transformer": IWSLT + CODE + "data.merges=10000 optimizer.lr=1.5e-3",
    "iwslt14-small-macaron-paper": IWSLT + TEXT + "data.vocab_size=10000 " + VASWANI,
    "wmt14-base-macaron": BASE + CODE + "data.merges=32764 optimizer.lr=1.5e-3",
    "wmt14-base-transformer-paper": BASE + TEXT + "data.vocab_size=37000 " + VASWANI,
    "wmt14-big-transformer": WMT + CODE + "data.batch_parts=64 data.merges=32764 optimizer.lr=3e-3",
    "wmt14-big-macaron-paper": WMT + TEXT + "data.vocab_size=37000 optimizer.lr=3e-3",
    "multi30k-tiny": """optimizer.lr=5e-3 optimizer.warmup_steps=2000 optimizer.clip_norm=25
        model.dropout=0.3 model.dropout_attention=0 model.dropout_ffn=0 train.steps=8000
        train.batch_tokens=4096""",
    "gpt1": """data.tokenizer=gpt1-bpe data.vocab_size=40478
        train.batch_sequences=64 train.epochs=100 model.dropout_embedding_of=matrix
        optimizer.form=gpt1 optimizer.betas=[0.9,0.999] optimizer.eps=1e-8 optimizer.clip_norm=1
        optimizer.weight_decay=0.01 optimizer.decay_vectors=false model.norm_order=post
        model.init=normal model.init_std=0.02 model.softmax=all""",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_settings_are_those_of_the_recipe(name):
    recipe = load_recipe(name).recipe
    assert load_recipe(name, PUBLISHED[name].split()).recipe == recipe


def test_gpt1_has_the_parameters_and_rates_of_its_release():
    recipe = load_recipe("gpt1").recipe
    model = resolve_model(recipe.model, vocab_size=40_478, context=recipe.data.context)
    # Tokens, positions and 12 blocks (openai/finetune-transformer-lm).
    assert count_parameters(model).total == 31_087_104 + 393_216 + 85_054_464 == 116_534_784
    assert (model.d_head, model.d_ff, model.max_len) == (64, 3072, 512)
    assert (model.final_norm, model.norm_eps, model.positions) == ("none", 1e-5, "learned")
    assert (model.ffn, model.gelu, model.head_bias) == ("gelu", "tanh", False)
    assert model.dropout == model.dropout_attention == model.dropout_embedding == 0.1
    steps = (0, 1000, 2000, 100_000, 200_000)
    rates = [learning_rate(recipe.optimizer, step, 200_000) for step in steps]
    assert rates == pytest.approx([0.0, 1.25e-4, 2.5e-4, 1.25e-4, 0.0], abs=1e-12)


@pytest.mark.parametrize("name", ["char-ablation", "char-context", "char-depth"])
def test_the_papers_figures_are_of_text8s_validation_split_and_the_full_context(name):
    study = load_study(name, scale="paper")
    assert {arm.loaded.recipe.data.corpus for arm in study.arms} == {"text8"}
    assert (study.scoring.split, study.scoring.stride, study.scoring.tokens) == ("valid", 1, None)
    for arm in load_study(name, scale="cpu").arms:
        assert arm.loaded.recipe.optimizer.clip_norm == 0.0


def test_depth_is_tried_at_tuned_rates_with_norms_after_and_from_a_plain_start():
    study = load_study("char-depth", scale="cpu-all")
    assert study.tune == ("optimizer.lr=0.0125,0.025,0.05,0.1",)
    found = set()
    for arm in study.arms:
        recipe = arm.loaded.recipe
        model, has_losses = recipe.model, recipe.objective.auxiliary == "layers"
        found.add((model.n_layers, model.norm_order, model.init, has_losses))
        assert recipe.train.steps // recipe.train.evaluate_steps == 20
        # Ten times the bytes of the record that clipped.
        assert recipe.train.steps * recipe.train.batch_sequences * recipe.data.context >= 5_120_000
    axes = ((6, 24), ("pre", "post"), ("scaled", "normal"), (True, False))
    assert found == set(itertools.product(*axes))


@pytest.mark.parametrize("scale", ["paper", "cpu", "cpu-all"])
def test_depth_is_decided_by_the_interaction_of_losses_and_depth(scale):
    study = load_study("char-depth", scale=scale)
    contrast = study.question.hypothesis.contrast
    recipes = {arm.name: arm.loaded.recipe for arm in study.arms}
    deepest = max(recipes[name].model.n_layers for name in contrast)
    for name, weight in contrast.items():
        model, has_losses = recipes[name].model, recipes[name].objective.auxiliary == "layers"
        assert weight == (1 if (model.n_layers == deepest) == has_losses else -1)
        assert model.norm_order == "post"


@pytest.mark.parametrize(("scale", "widths"), [("paper", (2048, 1024)), ("released", (1024, 512))])
def test_macaron_translation_has_the_recipes_of_the_text_and_those_of_the_code(scale, widths):
    study = load_study("macaron-translation", scale=scale)
    recipes = [arm.loaded.recipe for arm in study.arms]
    assert [recipe.model.d_ff for recipe in recipes] == [*widths, 2048, 1024, 4096, 2048]
    hyphens = [recipe.data.moses_hyphens for recipe in recipes]
    assert hyphens == [False, False, True, True, True, True]
    assert "bleu_compounds" in [metric.name for metric in study_metrics(study)]


def test_each_modification_stands_alone_against_llama_and_against_gpt():
    study = load_study("modifications-2026")
    recipes = {arm.name: arm.loaded.recipe.model_dump() for arm in study.arms}
    plan = make_plan(study.arms, study.match, PLENTY, multiple=study.match_multiple)
    found = dict.fromkeys(("llama-2023", "gpt"), 0)
    for arm, planned in zip(study.arms, plan.arms, strict=True):
        partner = arm.against or study.arms[0].name
        changed = {
            f"{table}.{name}"
            for table, fields in recipes[partner].items() if isinstance(fields, dict)
            for name, value in fields.items() if recipes[arm.name][table][name] != value
        }  # fmt: skip
        assert changed == arm.settings.keys(), arm.name
        assert abs(planned.excess.planned.parameters or 0) < TOLERANCE
        found[partner] += arm.name != partner
    assert found["llama-2023"] >= 15 and found["gpt"] >= 13
    assert study.n_seeds >= 5 and len(study.tune) == 1


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_no_width_of_splitting_is_an_accident_of_matching(scale):
    study = load_study("splitting", scale=scale)
    first, *others = make_plan(study.arms, study.match, PLENTY).arms
    width = study.arms[0].loaded.recipe.model.d_ff
    widths = {first.name: width}
    for arm in others:
        assert arm.parameters.total == pytest.approx(first.parameters.total, rel=1e-3)
        # As its caveat says.
        assert 0.955 < arm.flops_per_token / first.flops_per_token < 1.095, arm.name
        (solved,) = arm.match.overrides or (f"model.d_ff={width}",)
        widths[arm.name] = int(solved.removeprefix("model.d_ff="))
        expected = width / 2 if "FFN outside" in arm.name else width
        assert 0.7 * expected < widths[arm.name] < 1.25 * expected, arm.name
    # Each is compared with the same list in whole steps.
    pairs = [(widths[split], widths[whole]) for split, whole in study.against.items()]
    assert len(pairs) >= 3 and all(one == other for one, other in pairs)
