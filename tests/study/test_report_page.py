"""The report's sections: each stands where it has something to show, and shows it as it is."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.commands.shared.comparison import render
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.study.findings.differing_fields import differing_fields
from sublayer.study.findings.final_losses import final_losses
from sublayer.study.findings.samples import decoded
from sublayer.study.report.cost_figures import draw_costs, equal_costs, interval_at_arm
from sublayer.study.report.filters import printable, unbroken
from sublayer.study.report.html import render_report
from sublayer.study.results import ArmResult, Curve, Results, Sample, StudyText
from tests.wrapping import unwrapped

Synthetic = Callable[..., Results]


def with_arms(results: Results, change: Callable[[ArmResult], ArmResult]) -> Results:
    return replace(results, arms=tuple(change(arm) for arm in results.arms))


def cut(curve: Curve, n: int) -> Curve:
    return replace(
        curve,
        steps=curve.steps[:n],
        tokens=curve.tokens[:n],
        seconds=curve.seconds[:n],
        values=curve.values[:n],
    )


def headings(page: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]*)</h2>", page)


def test_curves_of_one_point_each_are_left_out(synthetic_results: Synthetic):
    results = with_arms(
        synthetic_results(), lambda arm: replace(arm, curves=tuple(cut(c, 1) for c in arm.curves))
    )
    page = render_report(results)
    assert "Learning curves" not in headings(page)
    assert "a run was evaluated once, and it takes 4" in page


def test_a_curve_of_one_point_among_longer_ones_is_a_dot_with_its_name(
    synthetic_results: Synthetic,
):
    results = synthetic_results({"long": 0.0, "short<i>": 0.1})
    first, second = results.arms
    second = replace(second, curves=tuple(cut(c, 1) for c in second.curves))
    page = render_report(replace(results, arms=(first, second)))
    figure = page.partition("Learning curves")[2].partition("</figure>")[0]
    assert "short&lt;i&gt;" in figure
    assert "long" not in figure.partition("<svg")[2]


@pytest.mark.slow
def test_the_losses_stand_where_training_was_measured(synthetic_results: Synthetic):
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=2)
    assert "Training and validation" not in headings(render_report(results))
    first, second = results.arms
    valid = tuple(replace(c, values=tuple(2.0 for _ in c.values)) for c in first.curves)
    trained = tuple(replace(c, values=tuple(1.75 for _ in c.values)) for c in first.curves)
    first = replace(first, further_curves={"loss": valid}, training_curves=trained)
    assert final_losses(first, results.metric).gap == 0.25
    page = render_report(replace(results, arms=(first, second)))
    section = page.partition("Training and validation")[2].partition("</table>")[0]
    assert re.findall(r"<td>([^<]*)</td>", section) == ["1.750", "2.000", "+0.250", *3 * ["–"]]
    assert "training loss, nats" in page


def test_what_arms_differ_by_is_a_table_with_matched_and_tuned_marked(
    synthetic_results: Synthetic,
):
    results = synthetic_results({"a": 0.0, "b": 0.1})
    first, second = results.arms
    shared = "title = 'x'\n[model]\nn_layers = 2\n"
    first = replace(first, recipe=f"{shared}ffn = 'gelu'\n[train]\nseed = 0\n", matched=())
    second = replace(
        second,
        recipe=f"{shared}ffn = 'swiglu'\nd_ff = 171\n[train]\nseed = 3\n[optimizer]\nlr = 0.002\n",
        matched=("model.d_ff=171",),
        tuned=("optimizer.lr=0.002",),
    )
    fields = differing_fields((first, second))
    assert list(fields) == ["model.ffn", "model.d_ff", "optimizer.lr"]
    the_other_way = render(replace(results, arms=(second, first), baseline="b"), Path("r.html"))
    assert "a differs from b by model.ffn = gelu, no model.d_ff, no optimizer.lr" in unwrapped(
        the_other_way
    )
    assert fields["model.d_ff"]["a"].value is None
    page = render_report(replace(results, arms=(first, second)))
    section = page.partition("<h2>The arms</h2>")[2].partition("</section>")[0]
    assert re.findall(r'"origin">(\w+)<', section) == ["matched", "tuned"]
    assert "171 <small" in section
    assert "n_layers" not in section
    text = unwrapped(render(replace(results, arms=(first, second)), Path("report.html")))
    said = (
        "b differs from a by model.ffn = swiglu, model.d_ff = 171 (matched), "
        "optimizer.lr = 0.002 (tuned) report:"
    )
    assert said in text


@pytest.mark.slow
def test_what_follows_from_other_fields_is_no_difference_of_its_own(
    synthetic_results: Synthetic,
):
    def recipe(ffn: str, steps: int, derived: str, lengthened: str = "") -> str:
        return (
            f"derived = [{derived}]\n{lengthened}\n[model]\nffn = '{ffn}'\n"
            f"norm_eps = 1e-{steps}\n[train]\nsteps = {steps}\n"
        )

    first, second = synthetic_results({"a": 0.0, "b": 0.1}).arms
    both = "'model.norm_eps', 'train.steps'"
    first = replace(first, recipe=recipe("gelu", 5, both, "lengthened = [{at_step = 2}]"))
    derived = replace(second, recipe=recipe("relu", 6, both))
    # Minutes are other steps on another machine, which counts.
    assert list(differing_fields((first, derived))) == ["model.ffn", "train.steps"]
    told = replace(second, recipe=recipe("relu", 6, "'train.steps'"))
    assert "model.norm_eps" in differing_fields((first, told))


def test_arms_with_equal_recipes_have_no_table(synthetic_results: Synthetic):
    assert "The arms" not in headings(render_report(synthetic_results()))


@pytest.mark.slow
def test_text_and_date_stand_at_the_top_and_checksums_are_folded(synthetic_results: Synthetic):
    results = synthetic_results()
    sizes = {"bytes": 112_251, "tokens": 30_000, "documents": 1}
    text = StudyText(("a.txt", "<b>.txt"), {"train": {**sizes, "documents": 634}, "test": sizes})
    reproduction = replace(results.reproduction, text=text, date="2026-11-23T10:00:00+00:00")
    page = render_report(replace(results, reproduction=reproduction))
    header = page.partition("</header>")[0]
    space = "\N{NO-BREAK SPACE}"
    assert (
        f"Text: a.txt and &lt;b&gt;.txt; trained on 634 documents, 112{space}kB; scored on the "
        f"test split’s 1 document, 112{space}kB; finished on 2026-11-23."
    ) in header
    folded = page.partition("Checksums of the text")
    assert folded[0].rpartition("<")[0].endswith("<details>")
    assert "77ab01" in folded[2].partition("</details>")[0]
    assert "Text: " not in render_report(results)


def test_numbers_of_a_note_are_not_broken_at_their_hyphen():
    said = unbroken("<i> chose lr=8e-3: lr=1.6e-2 2.2, post-norm 3-4")
    number = "<span class=number>{}</span>".format
    assert str(said) == (
        f"&lt;i&gt; chose lr={number('8e-3')}: lr={number('1.6e-2')} 2.2, post-norm 3-4"
    )


@pytest.mark.slow
def test_generated_text_is_escaped_and_what_is_no_text_is_marked(synthetic_results: Synthetic):
    sample = Sample("Once", ' <b>&"\n\ufffd\x07')
    results = with_arms(synthetic_results(), lambda arm: replace(arm, sample=sample))
    page = render_report(results)
    section = page.partition("What they write")[2].partition("</section>")[0]
    assert '<b>Once</b> &lt;b&gt;&amp;&#34;<i class="break">↵</i>' in section
    assert section.count('title="not valid UTF-8"') == len(results.arms)
    assert 'title="U+0007"' in section
    assert "\x07" not in section
    assert "What they write" not in headings(render_report(synthetic_results()))
    assert str(printable("plain é")) == "plain é"


def test_bytes_that_are_no_utf8_become_one_mark_and_a_torn_end_goes():
    tokenizer = ByteTokenizer()
    assert decoded(tokenizer, iter(b"ab\xff\xc3\xa9c\xe2\x82")) == "ab\ufffdéc"


def test_costs_that_all_arms_share_are_said_and_not_drawn(synthetic_results: Synthetic):
    results = synthetic_results()
    assert draw_costs(results) == []
    assert equal_costs(results) == ["time", "FLOPs", "parameters"]
    first, *others = results.arms
    slow = replace(first, costs=replace(first.costs, seconds=2 * (first.costs.seconds or 1)))
    results = replace(results, arms=(slow, *others))
    (plot,) = draw_costs(results)
    assert "seconds of a run" in plot
    assert equal_costs(results) == ["FLOPs", "parameters"]


def test_bars_reach_as_far_as_the_interval_of_the_difference(synthetic_results: Synthetic):
    results = synthetic_results()
    (difference, *_) = results.differences
    bar = interval_at_arm(results, results.arms[1])
    assert bar is not None
    assert difference.low is not None and difference.high is not None
    assert sum(bar) == pytest.approx(difference.high - difference.low)
    assert interval_at_arm(results, results.arms[0]) is None


def test_commands_wrap_and_the_button_shows_only_where_it_works(synthetic_results: Synthetic):
    page = render_report(synthetic_results())
    assert re.search(
        r'<pre>sublayer compare [^<]*</pre><button type="button" class="copy" hidden>', page
    )
    assert "white-space: pre-wrap" in page.partition("</style>")[0]


def test_a_study_of_which_one_arm_has_begun_reads_as_it_is(synthetic_results: Synthetic):
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=1)
    first, second = results.arms
    bare = replace(second, seeds=(), values=(), curves=(), recipe="")
    bare = replace(bare, costs=replace(bare.costs, seconds=None, tokens=None, tokens_per_s=None))
    nothing = replace(results.differences[0], seeds=(), mean=None)
    page = render_report(replace(results, arms=(first, bare), differences=(nothing,)))
    assert "no validation curve of one metric" in page
    assert "Seed by seed" in headings(page)


def test_every_template_is_part_of_the_page():
    folder = Path(__file__).parents[2] / "sublayer" / "study" / "report" / "page"
    # A page of its own is that of a suite's scorecard.
    pages = ("report.html.j2", "suite.html.j2")
    whole = "".join((folder / page).read_text() for page in pages)
    for path in folder.glob("*.j2"):
        assert path.name in pages or f'"{path.name}"' in whole
