from sublayer.tables import table


def test_columns_are_as_wide_as_their_widest_cell():
    text = table(["arm", "loss"], [("gpt", "1.25"), ("macaron", "10.5")], right=[1])
    assert text.splitlines() == ["arm      loss", "-------  ----", "gpt      1.25", "macaron  10.5"]
    assert table(["arm", "loss"], []).splitlines() == ["arm  loss", "---  ----"]
