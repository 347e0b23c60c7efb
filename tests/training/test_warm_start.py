"""Starting from another model: part by part, weights read once, what starts fresh said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer import loading
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.train import InitConfig
from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.characters import CharacterTokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.errors import CheckpointError
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import Transformer
from sublayer.runs.run import from_recipe
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec, spec_files
from sublayer.training.warm_start import Pretrained, start_from
from tests.made import TINY
from tests.training.conftest import Notes

KINDS = ("decoder", "encoder", "encoder-decoder", "lstm")
SENTENCE = {"pooler": "tanh", "sentence_classes": 2}
HEADS = ("pooler.", "sentence_head.")

each_kind = pytest.mark.parametrize("kind", KINDS)


def make_model(seed: int, **fields: Any) -> Transformer:
    config = ModelConfig(**{"n_layers": 3, "d_model": 8, "n_heads": 2, "head_bias": True, **fields})
    return build(resolve_model(config, vocab_size=9, context=7), seed=seed)


def start(
    model: Transformer, source: Transformer, folder: Path, layers: int | None = None
) -> list[str]:
    """Start a model from another one's folder."""
    save_model(folder, source, {})
    return start_from(model, Pretrained(InitConfig(run=str(folder), layers=layers)))


def parts(model: Transformer, *prefixes: str) -> dict[str, torch.Tensor]:
    found = model.state_dict().items()
    return {name: value for name, value in found if name.startswith(prefixes)}


def others(model: Transformer, *prefixes: str) -> dict[str, torch.Tensor]:
    found = model.state_dict().items()
    return {name: value for name, value in found if not name.startswith(prefixes)}


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@each_kind
def test_all_parts_of_a_model_are_taken(kind: str, tmp_path: Path) -> None:
    model, source = (make_model(seed, kind=kind, **SENTENCE) for seed in (1, 2))
    assert start(model, source, tmp_path / "run") == []
    assert_equal(model.state_dict(), source.state_dict())


@each_kind
def test_heads_that_the_run_lacks_start_fresh(kind: str, tmp_path: Path) -> None:
    model, fresh = (make_model(1, kind=kind, **SENTENCE) for _ in range(2))
    source = make_model(2, kind=kind)
    run = tmp_path / "run"
    assert start(model, source, run) == [
        f"starts fresh: pooler ({run} has none), sentence head ({run} has none)"
    ]
    assert len(parts(model, *HEADS)) == 4
    assert_equal(parts(model, *HEADS), parts(fresh, *HEADS))
    assert_equal(others(model, *HEADS), source.state_dict())


@each_kind
def test_heads_that_the_recipe_does_not_ask_for_are_left_out(kind: str, tmp_path: Path) -> None:
    model, source = make_model(1, kind=kind, pooler="tanh"), make_model(2, kind=kind, **SENTENCE)
    run = tmp_path / "run"
    assert start(model, source, run) == [
        f"left out of {run}: sentence head (the recipe asks for none)"
    ]
    assert_equal(model.state_dict(), others(source, "sentence_head."))


@pytest.mark.parametrize(
    ("fields", "head", "title"),
    [
        ({"sentence_classes": 1}, "sentence_head.", "sentence head"),
        ({"head": "transform"}, "head.", "vocabulary head"),
    ],
)
def test_a_head_of_other_weights_starts_fresh(
    fields: dict[str, Any], head: str, title: str, tmp_path: Path
) -> None:
    model, fresh = (make_model(1, kind="encoder", **{**SENTENCE, **fields}) for _ in range(2))
    source = make_model(2, kind="encoder", **SENTENCE)
    run = tmp_path / "run"
    assert start(model, source, run) == [f"starts fresh: {title} (that of {run} has other weights)"]
    assert_equal(parts(model, head), parts(fresh, head))
    assert_equal(others(model, head), others(source, head))


def test_an_output_bias_that_the_run_lacks_starts_at_zero_beside_its_head(tmp_path: Path) -> None:
    model = make_model(1, head="transform")
    source = make_model(2, head="transform", head_bias=False)
    run = tmp_path / "run"
    assert start(model, source, run) == [f"starts fresh: output bias ({run} has none)"]
    assert_equal(others(model, "head.bias"), source.state_dict())
    assert model.head is not None and model.head.bias is not None
    assert not model.head.bias.any()


def test_a_label_head_is_kept_for_the_same_answers_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    source = make_model(2, label_outputs=2)
    save_model(run, source, spec_files(TaskSpec((TASKS["rte"],), "traversal", 7)))
    pretrained = Pretrained(InitConfig(run=str(run)))
    model, fresh = (make_model(1, label_outputs=2) for _ in range(2))
    model.task = TaskSpec((TASKS["sst2"],), "traversal", 7)
    assert start_from(model, pretrained) == [
        f"starts fresh: label head (that of {run} answers RTE)"
    ]
    assert_equal(parts(model, "label_head."), parts(fresh, "label_head."))
    model.task = TaskSpec((TASKS["qnli"],), "traversal", 7)
    assert start_from(model, pretrained) == []
    assert_equal(model.state_dict(), source.state_dict())


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_new_tokens_have_rows_as_they_are_drawn_and_others_stay_at_their_ids(
    tie_embeddings: bool, tmp_path: Path
) -> None:
    vocabulary = CharacterTokenizer("abcdefg")
    extended = with_names(vocabulary, TRAVERSAL_NAMES)
    n_known, n_ids = vocabulary.vocab_size, extended.vocab_size
    fields = {"tie_embeddings": tie_embeddings}
    # Two rows beyond the vocabulary, as where it was padded: a new token takes its own there too.
    source = make_model(2, vocab_size=n_known + 2, **fields)
    model, fresh = (make_model(1, vocab_size=n_ids + 1, **fields) for _ in range(2))
    model.tokenizer = extended
    run = tmp_path / "run"
    save_model(run, source, {"tokenizer.json": vocabulary.serialize()})
    assert start_from(model, Pretrained(InitConfig(run=str(run)))) == [
        "starts fresh: 3 tokens added to the vocabulary (_start_, _delimiter_, _classify_)"
    ]
    tables = ["embedding.weight", "head.bias"] + ([] if tie_embeddings else ["head.weight"])
    for name in tables:
        found = model.state_dict()[name]
        assert torch.equal(found[:n_known], source.state_dict()[name][:n_known])
        assert torch.equal(found[n_known:], fresh.state_dict()[name][n_known:])
    rest = set(model.state_dict()) - set(tables)
    assert all(torch.equal(model.state_dict()[name], source.state_dict()[name]) for name in rest)


def test_padded_rows_are_kept_where_no_token_is_new(tmp_path: Path) -> None:
    model, fresh = (make_model(1, vocab_size=12) for _ in range(2))
    source = make_model(2, vocab_size=10)
    assert start(model, source, tmp_path / "run") == [
        "starts fresh: 2 rows of the embedding matrix"
    ]
    assert torch.equal(model.embedding.weight[:10], source.embedding.weight)
    assert torch.equal(model.embedding.weight[10:], fresh.embedding.weight[10:])


def test_more_positions_than_were_learned_are_refused(tmp_path: Path) -> None:
    model, source = make_model(1, max_len=11), make_model(2)
    with pytest.raises(CheckpointError, match=r"learned 7 positions, .* give data\.context=7"):
        start(model, source, tmp_path / "run")


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("positions", ["learned", "learned-per-layer"])
def test_the_first_of_the_learned_positions_are_taken(
    kind: str, positions: str, tmp_path: Path
) -> None:
    model = make_model(1, kind=kind, positions=positions, max_len=7)
    source = make_model(2, kind=kind, positions=positions, max_len=11)
    run = tmp_path / "run"
    assert start(model, source, run) == [
        f"keeps the first 7 of the 11 positions that {run} has learned"
    ]
    for name, value in source.state_dict().items():
        expected = value[:7] if ".tables." in name else value
        assert torch.equal(model.state_dict()[name], expected)


@pytest.mark.parametrize("kind", ["decoder", "encoder", "lstm"])
def test_the_first_blocks_come_with_the_heads_that_both_have(kind: str, tmp_path: Path) -> None:
    model, fresh = (make_model(1, kind=kind, **SENTENCE) for _ in range(2))
    source = make_model(2, kind=kind, pooler="tanh")
    run = tmp_path / "run"
    assert start(model, source, run, layers=1) == [
        f"starts fresh: sentence head ({run} has none), 2 of 3 blocks (init.layers = 1)"
    ]
    kept = tuple(f"{kind}.sublayers.{place}.{layer}." for place in (0, 1) for layer in (1, 2))
    kept = (*kept, "sentence_head.")
    assert_equal(parts(model, *kept), parts(fresh, *kept))
    assert_equal(others(model, *kept), others(source, *kept))


def test_blocks_that_share_the_weights_of_the_first_do_not_start_fresh(tmp_path: Path) -> None:
    model, source = (make_model(seed, kind="encoder", share="all") for seed in (1, 2))
    assert start(model, source, tmp_path / "run", layers=1) == []
    assert_equal(model.state_dict(), source.state_dict())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_ff": 12}, r"input.weight is \[12, 8\] there, \[32, 8\] here"),
        ({"vocab_size": 11}, r"embedding.weight is \[11, 8\] there, \[9, 8\] here"),
        ({"n_layers": 2}, r"it has no encoder.sublayers.0.2.function.output.bias"),
    ],
    ids=str,
)
def test_a_part_of_another_shape_is_refused(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = make_model(1, kind="encoder", **SENTENCE)
    source = make_model(2, **{"kind": "encoder", **SENTENCE, **fields})
    with pytest.raises(CheckpointError, match=message):
        start(model, source, tmp_path / "run")


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose weights are read, one entry a time."""
    read, folders = loading.load_weights, []

    def load_weights(folder: Path, **options: Any) -> Any:
        folders.append(folder)
        return read(folder, **options)

    monkeypatch.setattr(loading, "load_weights", load_weights)
    return folders


@pytest.mark.slow
def test_a_run_reads_the_weights_once_and_says_what_starts_fresh_at_its_start_alone(
    run: Callable[..., Any], tmp_path: Path, readings: list[Path]
) -> None:
    run("first")
    settings = {
        "init.run": str(tmp_path / "first"),
        "init.layers": 1,
        "objective.auxiliary": "layers",
        "train.steps": 6,
    }
    notes = Notes()
    run("second", settings, progress=notes)
    assert readings == [tmp_path / "first" / "model"]
    blocks, heads = [text for text in notes.texts if text.startswith("starts fresh")]
    assert blocks == "starts fresh: 1 of 2 blocks (init.layers = 1)"
    assert heads.endswith("parameters that training alone needs (no saved model has them)")
    (tmp_path / "second" / "record.json").unlink()
    notes = Notes()
    run("second", settings, progress=notes, resume=True)
    assert not any(text.startswith("starts fresh") for text in notes.texts)


@pytest.mark.slow
def test_a_model_of_a_recipe_reads_the_weights_once_and_logs_what_starts_fresh(
    run: Callable[..., Any],
    tiny: Callable[..., Any],
    tmp_path: Path,
    readings: list[Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run("first")
    settings = {**TINY, "init.run": str(tmp_path / "first"), "init.layers": 1}
    from_recipe("gpt", {**settings, "data.path": tiny().recipe.data.path})
    assert readings == [tmp_path / "first" / "model"]
    assert "starts fresh: 1 of 2 blocks (init.layers = 1)" in caplog.text
