"""Starts from another model: its parts, its first blocks, and parts that stay frozen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sublayer import loading
from sublayer.config.freezing import Frozen
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.objectives.kinds import NEXT_TOKEN
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.resolve_model import resolve_model
from sublayer.config.train import InitConfig
from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.characters import CharacterTokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.errors import CheckpointError, ConfigError, Interrupted
from sublayer.estimate.frozen import n_frozen_parameters, n_frozen_states
from sublayer.estimate.optimizer_states import n_states
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import Transformer
from sublayer.objective.causal.family import CAUSAL
from sublayer.runs.run import from_recipe
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec, spec_files
from sublayer.training.freezing import freeze, frozen_parameters
from sublayer.training.warm_start import Pretrained, start_from
from tests.made import SPAN, Made
from tests.training.runs import Notes, SignalAt, results

SHAPE = {"model.n_layers": 3, "model.d_model": 24, "model.n_heads": 2, "data.context": 32}
SHAPE |= {"model.positions": "learned-per-layer"}
SENTENCE = {"pooler": "tanh", "sentence_classes": 2}
HEADS = ("pooler.", "sentence_head.")


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


@pytest.mark.parametrize("kind", ["encoder-decoder", "lstm"])
def test_all_parts_of_a_model_are_taken(kind: str, tmp_path: Path) -> None:
    model, source = (make_model(seed, kind=kind, **SENTENCE) for seed in (1, 2))
    assert start(model, source, tmp_path / "run") == []
    assert_equal(model.state_dict(), source.state_dict())


def test_heads_that_the_run_lacks_start_fresh(tmp_path: Path) -> None:
    model, fresh = (make_model(1, kind="encoder", **SENTENCE) for _ in range(2))
    source = make_model(2, kind="encoder")
    run = tmp_path / "run"
    assert start(model, source, run) == [
        f"starts fresh: pooler ({run} has none), sentence head ({run} has none)"
    ]
    assert len(parts(model, *HEADS)) == 4
    assert_equal(parts(model, *HEADS), parts(fresh, *HEADS))
    assert_equal(others(model, *HEADS), source.state_dict())


def test_heads_that_the_recipe_does_not_ask_for_are_left_out(tmp_path: Path) -> None:
    model = make_model(1, kind="lstm", pooler="tanh")
    source = make_model(2, kind="lstm", **SENTENCE)
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


def test_more_positions_than_were_learned_are_refused(tmp_path: Path) -> None:
    model, source = make_model(1, max_len=11), make_model(2)
    with pytest.raises(CheckpointError, match=r"learned 7 positions, .* give data\.context=7"):
        start(model, source, tmp_path / "run")


@pytest.mark.parametrize(
    ("kind", "positions"), [("decoder", "learned"), ("encoder-decoder", "learned-per-layer")]
)
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


def test_the_first_blocks_come_with_the_heads_that_both_have(tmp_path: Path) -> None:
    kind = "encoder"
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


TWO: dict[str, Any] = {"kind": "encoder-decoder"}


def two_stacks(seed: int, n_layers: int = 3, n_decoder_layers: int = 2, **fields: Any) -> Any:
    return make_model(
        seed, **{**TWO, "n_layers": n_layers, "n_decoder_layers": n_decoder_layers, **fields}
    )


def is_of_later_block(name: str, n_taken: int, *, has_tables: bool) -> bool:
    """Return whether a tensor is of a block of its own, or its positions, beyond the first."""
    words = name.removeprefix("source.").split(".")
    if words[:1] in (["encoder"], ["decoder"]):  # encoder.sublayers.PLACE.LAYER
        return int(words[3]) >= n_taken
    return has_tables and words[:2] == ["positions", "tables"] and int(words[2]) >= n_taken


def split(model: Transformer, n_taken: int) -> tuple[dict[str, Any], dict[str, Any]]:
    has_tables = model.config.positions == "learned-per-layer"
    taken, fresh = {}, {}
    for name, value in model.state_dict().items():
        is_later = is_of_later_block(name, n_taken, has_tables=has_tables)
        (fresh if is_later else taken)[name] = value
    return taken, fresh


def assert_taken(model: Transformer, drawn: Transformer, source: Transformer, n: int) -> None:
    """Check that the first blocks and all outside are the source's, and the others as drawn."""
    taken, fresh = split(model, n)
    assert taken and fresh
    theirs, as_drawn = source.state_dict(), drawn.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in taken.items())
    assert all(torch.equal(value, as_drawn[name]) for name, value in fresh.items())
    # Seeds differ, so that to be equal is to be taken.
    weights = [name for name in taken if name.endswith("projection.weight")]
    assert all(not torch.equal(theirs[name], as_drawn[name]) for name in weights)


@pytest.mark.parametrize(
    ("positions", "n_taken"),
    [("learned", 0), ("learned-per-layer", 1), ("learned-per-layer", 2), ("relative", 1)],
)
def test_the_first_blocks_of_both_stacks_are_taken(
    positions: str, n_taken: int, tmp_path: Path
) -> None:
    model, drawn = (two_stacks(1, positions=positions) for _ in range(2))
    source = two_stacks(2, positions=positions)
    notes = start(model, source, tmp_path / "run", layers=n_taken)
    said = f"{3 - n_taken} of 3 encoder blocks"
    if n_taken < 2:
        said += f" and {2 - n_taken} of 2 decoder blocks"
    assert notes == [f"starts fresh: {said} (init.layers = {n_taken})"]
    assert_taken(model, drawn, source, n_taken)


def test_stacks_may_have_other_numbers_of_blocks_than_the_start(tmp_path: Path) -> None:
    model, drawn = (two_stacks(1, 2, 4, positions="learned-per-layer") for _ in range(2))
    source = two_stacks(2, 3, 1, positions="learned-per-layer")
    assert start(model, source, tmp_path / "run", layers=1) == [
        "starts fresh: 1 of 2 encoder blocks and 3 of 4 decoder blocks (init.layers = 1)"
    ]
    assert_taken(model, drawn, source, 1)


def test_blocks_of_either_stack_that_share_the_first_one_s_weights_are_taken_too(
    tmp_path: Path,
) -> None:
    model, source = (two_stacks(seed, share="all", positions="relative") for seed in (1, 2))
    assert start(model, source, tmp_path / "run", layers=1) == []
    theirs = source.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ((3, 3), (3, 2), "the 2 blocks of the decoder of the model of"),
        ((2, 3), (3, 3), "the 2 blocks of the encoder of the recipe"),
    ],
)
def test_more_blocks_than_a_stack_has_are_refused(
    ours: tuple[int, int], theirs: tuple[int, int], said: str, tmp_path: Path
) -> None:
    model, source = two_stacks(1, *ours), two_stacks(2, *theirs)
    with pytest.raises(ConfigError, match=f"init.layers = 3 is more than {said}"):
        start(model, source, tmp_path / "run", layers=3)


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


def test_a_run_reads_the_weights_once_and_notes_what_starts_fresh_at_its_start_alone(
    made: Made, run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings, read = [], loading.load_weights

    def load_weights(folder: Path, **options: Any) -> Any:
        readings.append(folder)
        return read(folder, **options)

    monkeypatch.setattr(loading, "load_weights", load_weights)
    first = made("causal")
    settings = {"init.run": str(first), "init.layers": 1, "objective.auxiliary": "layers"}
    settings |= {"train.steps": 2}
    notes = Notes()
    run("second", settings, progress=notes)
    assert readings == [first / "model"]
    blocks, heads = [text for text in notes.texts if text.startswith("starts fresh")]
    assert blocks == "starts fresh: 1 of 2 blocks (init.layers = 1)"
    assert "training alone needs" in heads
    (tmp_path / "second" / "record.json").unlink()
    notes = Notes()
    run("second", settings, progress=notes, resume=True)
    assert not any(text.startswith("starts fresh") for text in notes.texts)


def test_a_model_of_a_recipe_starts_from_a_run_and_logs_what_starts_fresh(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    first = made("character")
    settings = {**SHAPE, "init.run": str(first)}
    model = from_recipe("gpt", {**settings, "init.layers": 1})
    fresh = from_recipe("gpt", {**settings, "init.layers": 0})
    assert "starts fresh: 2 of 3 blocks (init.layers = 1)" in caplog.text
    taken = ("decoder.sublayers.0.0.", "decoder.sublayers.1.0.", "positions.tables.0.")
    blocks = ("decoder.", "positions.tables.")
    source = load(first).state_dict()
    for name, value in model.state_dict().items():
        is_taken = name.startswith(taken) or not name.startswith(blocks)
        assert torch.equal(value, source[name] if is_taken else fresh.state_dict()[name]), name


@pytest.mark.parametrize(("share", "layers"), [("all", None), ("none", 2)])
def test_a_deeper_encoder_starts_from_a_shallower_one(
    share: str, layers: int | None, tmp_path: Path
) -> None:
    fields = {"kind": "encoder", "share": share, **SENTENCE}
    deeper, shallow = make_model(1, n_layers=4, **fields), make_model(2, n_layers=2, **fields)
    start(deeper, shallow, tmp_path / "run", layers=layers)
    given, found = shallow.state_dict(), deeper.state_dict()
    assert given.keys() <= found.keys()
    assert all(value.equal(found[name]) for name, value in given.items())
    assert (len(found) > len(given)) == (share == "none")


LEARNED = {"model.positions": "learned"}
OF_TOKENIZER = ("data.tokenizer", "data.vocab_size", "data.sentinels")
"""What a start brings."""
FROZEN: dict[str, tuple[dict[str, Any], Any, tuple[str, ...]]] = {
    "blocks": (
        {**LEARNED, "model.positions": "learned-per-layer"},
        "layers:1",
        ("decoder.sublayers.0.0.", "decoder.sublayers.1.0."),
    ),
    "embeddings and shared blocks": (
        {**LEARNED, "model.share": "all"},
        ["embeddings", "layers:2"],
        ("embedding.", "positions.", "decoder."),
    ),
    "an lstm's embeddings and first layer": (
        {"model.kind": "lstm", "model.d_embed": 12},
        ["embeddings", "layers:1"],
        ("embedding.", "lstm.sublayers.0.0."),
    ),
    "both sides' embeddings": (
        {**SPAN, "model.tie_embeddings": False},
        "embeddings",
        ("embedding.", "positions.", "source.positions."),
    ),
}


@pytest.mark.parametrize("case", FROZEN)
def test_frozen_parts_stay_to_the_bit_and_all_else_moves(
    run: Callable[..., Any], tmp_path: Path, case: str
) -> None:
    settings, freeze, prefixes = FROZEN[case]
    short = {**settings, "train.steps": 2, "optimizer.weight_decay": 0.1}
    run("start", short)
    kept_settings = {name: value for name, value in short.items() if name not in OF_TOKENIZER}
    started = {**kept_settings, "init.run": str(tmp_path / "start"), "init.freeze": freeze}
    notes = Notes()
    run("end", started, progress=notes)
    before, after = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("start", "end")
    )
    kept = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert kept == {name for name in before if name.startswith(prefixes)}
    (line,) = [text for text in notes.texts if text.startswith("stays as it is")]
    n_kept = sum(before[name].numel() for name in kept)
    assert f"{n_kept:,} parameters of {sum(each.numel() for each in before.values()):,}" in line
    states = load_file(tmp_path / "end" / "checkpoints" / "step-00000002" / "training.safetensors")
    named = {name.partition("/")[2].removeprefix("model.") for name in states}
    assert named & set(before) == set(before) - kept


def test_a_frozen_run_resumed_equals_an_unbroken_one(
    made: Made, run: Callable[..., Any], tmp_path: Path
) -> None:
    settings = {"init.run": str(made("causal")), "init.freeze": ["embeddings", "layers:1"]}
    settings |= {"train.steps": 7}
    run("whole", settings)
    with pytest.raises(Interrupted):
        run("broken", settings, progress=SignalAt(5))
    run("broken", settings, resume=True)
    assert results(tmp_path / "broken") == results(tmp_path / "whole")


@pytest.mark.parametrize(
    ("fields", "frozen"),
    [
        ({"kind": "decoder", "positions": "learned-per-layer"}, Frozen(True, 3)),
        (
            {"kind": "encoder", "segments": "both", "embedding_norm": True, "d_embed": 4},
            Frozen(True),
        ),
        ({"share": "all", "share_groups": 3, "block": "macaron"}, Frozen(False, 1)),
        ({"kind": "encoder-decoder", "embedding_norm": True}, Frozen(True)),
        ({"kind": "lstm", "d_embed": 4}, Frozen(False, 1)),
    ],
    ids=str,
)
def test_estimates_count_the_frozen_parameters(fields: dict[str, Any], frozen: Frozen) -> None:
    model = make_model(1, **fields)
    found = {id(each): each.numel() for each in frozen_parameters(model, frozen)}
    assert sum(found.values()) == n_frozen_parameters(model.config, frozen) > 0


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_frozen_blocks_and_embeddings_keep_no_optimizer_state(kind: str) -> None:
    config, optimizer = make_model(1, tie_embeddings=True).config, OPTIMIZERS[kind]()
    frozen = Frozen(embeddings=True, n_layers=3)
    # What is left is the final norm's gain and offset, and the bias of the output.
    left = (2 * 8 + 9) * optimizer.states_per_parameter
    assert n_states(config, NEXT_TOKEN, optimizer, frozen) == left
    assert n_frozen_states(config, frozen, optimizer) > 0 or kind == "sgd"


def test_to_freeze_all_parameters_is_refused() -> None:
    model = make_model(1, norm="none", final_norm="none", head_bias=False, tie_embeddings=True)
    objective = CAUSAL.build(model, CausalObjective(), 0)
    with pytest.raises(ConfigError, match="leaves nothing to train"):
        freeze(objective, InitConfig(run="run", freeze=("embeddings", "layers:3")))
