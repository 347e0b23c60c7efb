from pathlib import Path

import pytest

from sublayer.study.chain.keys import Keys


@pytest.mark.parametrize(
    "stage", ["sst2", "../../up", "/tmp/up", "a/b", "..", "a\0b", "CoLA: all", "x" * 300]
)
def test_the_folder_of_a_stage_is_one_of_the_studys_stages(tmp_path: Path, stage: str) -> None:
    folder = Keys({("full", stage): "0123456789abcdef"}).folder(tmp_path, "full", stage)
    assert folder.parent == tmp_path / "stages"
    assert folder.name.endswith("-0123456789")
    folder.mkdir(parents=True)
    assert folder.resolve().parent == (tmp_path / "stages").resolve()
