"""The shipped studies can be planned at each scale, with the arms of the paper's table."""

import math
from pathlib import Path

import pytest

from sublayer.config.resolve_model import resolve_model
from sublayer.runs.run import train_run
from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.resources import Resources
from sublayer.study.definition import Study, load_study, shipped_studies, study_scales
from sublayer.study.metrics import study_metrics
from sublayer.training.progress import SilentProgress

PLENTY = Resources("cpu", memory_bytes=1 << 60, disk_bytes=1 << 60, has_fast_bfloat16=True, cores=1)
SCALES = [(name, scale) for name in shipped_studies() for scale in study_scales(name)]
ENCODERS = [name for name in shipped_studies() if name.startswith(("albert-", "bert-"))]

POOLER = 768 * 768 + 768


def sentence_head(d_model: int) -> int:
    return 2 * d_model + 2


def masked_head(d_model: int, d_embed: int) -> int:
    # Map, norm and bias; the matrix is the table of tokens.
    return d_model * d_embed + d_embed + 2 * d_embed + 30_000


def totals(study: Study) -> dict[str, int]:
    return {arm.name: arm.parameters.total for arm in make_plan(study.arms, "none", PLENTY).arms}


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_it_can_be_planned(name: str, scale: str):
    study = load_study(name, scale=scale)
    assert study.source
    if study.chain is None:
        assert study_metrics(study)
    plan = make_plan(study.arms, study.match, PLENTY)
    assert [arm.name for arm in plan.arms] == [arm.name for arm in study.arms]
    for arm in study.arms:
        recipe = arm.loaded.recipe
        assert recipe.train.steps is not None or scale == "paper"
        resolve_model(
            recipe.model, vocab_size=recipe.data.vocab_size or 256, context=recipe.data.context
        )


@pytest.mark.parametrize("name", shipped_studies())
def test_a_study_of_minutes_says_what_its_verdicts_do_not_show(name: str):
    study = load_study(name, scale="cpu")
    assert study.caveats
    for caveat in study.caveats:
        assert caveat[0].isupper() or caveat[0] == '"'
        assert len(caveat) < 400


@pytest.mark.parametrize("name", ENCODERS)
def test_a_study_of_encoders_has_both_scales_and_takes_text_on_a_cpu(name: str):
    assert {"paper", "cpu"} <= {scale for other, scale in SCALES if other == name}
    for arm in load_study(name, ["data.path=books", "data.documents=file"], scale="cpu").arms:
        recipe = arm.loaded.recipe
        assert (recipe.data.path, recipe.data.corpus, recipe.data.documents) == (
            "books",
            None,
            "file",
        )
        assert (recipe.train.threads, recipe.train.precision) == (1, "auto")


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "albert-data"])
def test_arms_have_one_text_and_one_tokenizer(name: str):
    for scale in study_scales(name):
        assert (
            len(
                {
                    arm.loaded.recipe.data.model_dump_json()
                    for arm in load_study(name, scale=scale).arms
                }
            )
            == 1
        )


# Millions, without pooler and heads: Lan et al. 2020, tables 4 and 5 of the draft.
SHARING = {
    "E = 768, not shared": 108.49,
    "E = 768, shared attention": 82.49,
    "E = 768, shared FFN": 56.53,
    "E = 768, all shared": 30.52,
    "E = 128, not shared": 89.06,
    "E = 128, shared attention": 63.06,
    "E = 128, shared FFN": 37.10,
    "E = 128, all shared": 11.09,
}
EMBEDDING = {
    "not shared, E = 64": 87.06,
    "not shared, E = 128": 89.06,
    "not shared, E = 256": 93.06,
    "not shared, E = 768": 108.49,
    "all shared, E = 64": 9.09,
    "all shared, E = 128": 11.09,
    "all shared, E = 256": 15.10,
    "all shared, E = 768": 30.52,
}


@pytest.mark.parametrize(
    ("name", "published"), [("albert-sharing", SHARING), ("albert-embedding", EMBEDDING)]
)
def test_the_arms_of_base_size_have_the_papers_parameters(name: str, published: dict[str, float]):
    found = totals(load_study(name, scale="paper"))
    assert found.keys() == published.keys()
    for arm, total in found.items():
        d_embed = int(arm.partition("E = ")[2].partition(",")[0])
        bare = total - POOLER - sentence_head(768) - masked_head(768, d_embed)
        assert round(bare / 1e6, 2) == published[arm], arm


def test_the_widths_have_the_papers_parameters():
    found = totals(load_study("albert-width", scale="paper"))
    with_pooler = {
        arm: total - sentence_head(int(arm[4:])) - masked_head(int(arm[4:]), 128)
        for arm, total in found.items()
    }
    assert {arm: round(n / 1e6, 1) for arm, n in with_pooler.items()} == {
        "H = 1024": 17.7,
        "H = 2048": 58.7,
        "H = 4096": 222.6,
        "H = 6144": 495.5,
    }


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("albert-same-time", {"BERT-large": 335_691_058, "ALBERT-xxlarge": 223_158_450}),
        ("albert-layers", {"BERT-large": 335_691_058, "ALBERT-large": 17_847_474}),
        ("bert-width", {"BERT-large": 335_691_058, "BERT-xlarge": 1_279_526_194}),
        ("albert-dropout", {"with dropout": 223_158_450, "without dropout": 223_158_450}),
        (
            "albert-sentence",
            dict.fromkeys(["no sentence loss, untrained head", "NSP", "SOP"], 11_813_810),
        ),
        (
            "albert-data",
            dict.fromkeys(["without additional data", "with additional data"], 11_813_810),
        ),
        (
            "albert-depth",
            dict.fromkeys(
                ["1 layer", "3 layers", "6 layers", "12 layers", "24 layers", "48 layers"],
                17_847_474,
            ),
        ),
    ],
)
def test_the_other_arms_have_the_parameters_of_their_models(name: str, published: dict[str, int]):
    assert totals(load_study(name, scale="paper")) == published


def test_the_sentence_losses_differ_in_nothing_else():
    for scale in study_scales("albert-sentence"):
        study = load_study("albert-sentence", scale=scale)
        assert (study.metric or "").removeprefix("pretraining/") == "sop_accuracy"
        first, *learned = study.arms
        assert [arm.settings["objective.sentence"] for arm in learned] == ["nsp", "sop"]
        # Without a sentence loss the model learns of none: its head, at most, as a probe.
        objective = first.loaded.recipe.objective
        assert objective.sentence == "none" or objective.sentence_trains == "head"
        assert {key for arm in study.arms for key in arm.settings} <= {
            "objective.sentence",
            "objective.single_sentence",
            "objective.sentence_trains",
        }
        assert len({arm.loaded.recipe.model.model_dump_json() for arm in study.arms}) == 1


def test_the_sentence_losses_are_judged_on_the_papers_passages():
    for arm in load_study("albert-sentence", scale="paper").arms:
        data = arm.loaded.recipe.data
        assert (data.test_path, data.split) == ("albert-intrinsic", "99.9/0.1/0")
    assert all(
        arm.loaded.recipe.data.test_path is None
        for arm in load_study("albert-sentence", scale="cpu").arms
    )


def test_equal_time_is_matched_and_keeps_the_papers_steps_for_bert():
    study = load_study("albert-same-time", scale="paper")
    assert study.match == "time"
    assert study.arms[0].loaded.recipe.train.steps == 400_000


def test_the_albert_that_is_given_berts_time_has_the_papers_share_of_its_parameters():
    for scale in study_scales("albert-same-time"):
        found = totals(load_study("albert-same-time", scale=scale))
        bert, albert = found.values()
        assert albert / bert == pytest.approx(223 / 334, abs=0.01), scale


@pytest.mark.parametrize("name", ["albert-depth", "albert-width"])
def test_each_size_is_compared_with_the_one_below(name: str):
    for scale in study_scales(name):
        study = load_study(name, scale=scale)
        names = [arm.name for arm in study.arms]
        assert study.against == dict(zip(names[2:], names[1:-1], strict=True))


def test_layers_are_inspected_of_a_bert_and_an_albert_of_one_shape():
    for scale in study_scales("albert-layers"):
        study = load_study("albert-layers", scale=scale)
        assert study.inspecting is not None
        bert, albert = (arm.loaded.recipe.model for arm in study.arms)
        for field in ("n_layers", "d_model", "n_heads", "d_ff", "norm_order", "positions"):
            assert getattr(bert, field) == getattr(albert, field), field
        n_beyond = [study.inspecting.n_beyond(model) for model in (bert, albert)]
        assert n_beyond == [0, bert.n_layers]


@pytest.mark.slow
@pytest.mark.parametrize("name", [arm.name for arm in load_study("char-depth", scale="cpu").arms])
def test_every_depth_trains_at_the_highest_rate_that_is_tried(
    name: str, stories_path: Path, tmp_path: Path
):
    (tried,) = load_study("char-depth", scale="cpu").tune
    settings = [
        f"data.path={stories_path}",
        *("model.d_model=16", "model.n_heads=2", "model.d_ff=32", "data.context=32"),
        *("train.steps=12", "train.evaluate_steps=12", "train.evaluate_tokens=256"),
        *("train.checkpoint_steps=12", f"optimizer.lr={tried.rpartition(',')[2]}"),
    ]
    study = load_study("char-depth", settings, scale="cpu")
    (arm,) = [arm for arm in study.arms if arm.name == name]
    record = train_run(arm.loaded, tmp_path / "run", progress=SilentProgress())
    assert record["step"] == 12
    assert record["valid"]["loss"] < math.log(256)


def test_the_draft_draws_no_additional_text_into_its_first_arm():
    study = load_study("albert-data", scale="paper")
    assert study.chain is not None
    (stage,) = [each for each in study.chain.stages if not each.finetunes]
    for arm, is_drawn in zip(study.arms, (False, True), strict=True):
        settings = study.chain.settings_of(arm.name, stage)
        corpus, train = settings["data.corpus"], arm.loaded.recipe.train
        n_sequences = settings["train.steps"] * (train.batch_sequences or 0)
        n_drawn = n_sequences * corpus["c4"] / math.fsum(corpus.values())
        assert (n_drawn > 1) == is_drawn


@pytest.mark.parametrize("name", ["albert-data", "albert-dropout"])
def test_arms_that_go_on_with_one_training_go_on_at_its_rate_to_the_papers_end(name: str):
    for scale in study_scales(name):
        study = load_study(name, scale=scale)
        assert study.chain is not None
        (stage,) = [each for each in study.chain.stages if not each.finetunes]
        recipes = {arm.loaded.recipe.model_dump_json() for arm in study.arms}
        assert len(recipes) == 1
        before = study.arms[0].loaded.recipe
        settings = study.chain.settings_of(study.arms[0].name, stage)
        left = settings["train.steps"] / (settings["train.steps"] + (before.train.steps or 0))
        assert before.optimizer.final_lr_share == pytest.approx(left)
        assert settings["optimizer.lr"] == pytest.approx(left * before.optimizer.lr)
        if scale == "paper":
            total = settings["train.steps"] + (before.train.steps or 0)
            assert total == {"albert-data": 125_000, "albert-dropout": 1_000_000}[name]
