from pathlib import Path

from sublayer.commands.base import new_folder, table


def test_columns_are_as_wide_as_their_widest_cell():
    text = table(["arm", "loss"], [("gpt", "1.25"), ("macaron", "10.5")], right=[1])
    assert text.splitlines() == ["arm      loss", "-------  ----", "gpt      1.25", "macaron  10.5"]
    assert table(["arm", "loss"], []).splitlines() == ["arm  loss", "---  ----"]


def test_a_run_without_a_folder_gets_the_first_free_one(tmp_path: Path):
    for expected in ("gpt", "gpt-2", "gpt-3"):
        folder = new_folder("gpt", tmp_path)
        assert folder == tmp_path / expected
        folder.mkdir()
