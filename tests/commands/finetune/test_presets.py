"""A preset is told before training, figure by figure, and what is told on the line replaces it."""

from sublayer.commands.finetune.presets import describe_preset
from sublayer.config.layering.finetune import load_finetune


def test_every_figure_stands_beside_its_source() -> None:
    lines = list(describe_preset(load_finetune("albert-small", ["rte"], ".", preset="albert")))
    assert lines[0].startswith("preset albert: ")
    of_table = next(line for line in lines if "table 14" in line)
    assert "train.batch_sequences=32" in of_table
    assert any(line.startswith("  not set: ") for line in lines)


def test_what_is_told_counts_and_is_not_called_the_presets() -> None:
    finetuning = load_finetune("albert-small", ["rte"], ".", ["optimizer.lr=0.5"], preset="albert")
    assert finetuning.loaded.recipe.optimizer.lr == 0.5
    assert "optimizer.lr" not in {figure.key for figure in finetuning.figures()}
    assert not any("optimizer.lr=" in line for line in describe_preset(finetuning))


def test_only_what_a_recipe_of_pre_training_says_is_left_out_in_silence() -> None:
    finetuning = load_finetune("albert-small", ["rte"], ".", preset="macaron")
    assert not any("recipe albert-small" in note for note in finetuning.loaded.notes)
