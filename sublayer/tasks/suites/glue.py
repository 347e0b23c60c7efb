"""GLUE: nine tasks and a diagnostic set; SNLI and SciTail, two more sets of inference.

Sources: Wang et al. 2018 (1804.07461); Bowman et al. 2015 (1508.05326); Khot et al. 2018.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from sublayer.errors import DataError
from sublayer.files.lines import suffix_of
from sublayer.tasks.finding import SUFFIXES, FileLayout, Release
from sublayer.tasks.published import AnswerFile, ColumnsTask, ReadSplit
from sublayer.tasks.records import Record, read_records, read_tsv
from sublayer.tasks.suites.superglue import RTE_FILES, xml_records
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.tasks.wording import Wording, marking

_SUITE = ("glue", "glue_data")
_DATA = "https://dl.fbaipublicfiles.com/glue/data/"
_SENTEVAL = "https://dl.fbaipublicfiles.com/senteval/senteval_data/"
_AVERAGES = ("GLUE", "GLUE without WNLI")
"""Averages over nine tasks, as on the leaderboard, and over eight, as in papers."""
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
_MATCHED = ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
_SENTENCES = ("sentence1", "sentence2")
_PREMISE = ("premise", "hypothesis")
_INFERENCE = {
    "premise": ("premise", "sentence1", "Premise"),
    "hypothesis": ("hypothesis", "sentence2", "Hypothesis"),
}
_QUORA = "quora_duplicate_questions.tsv"
_NO_MAJORITY = "no majority label among annotators (-)"
_DIAGNOSTIC = {"ax.tsv": "test", "diagnostic.tsv": "test", "diagnostic-full.tsv": "dev"}
_ORIGINAL = {"msr_paraphrase_train.txt": "train", "msr_paraphrase_test.txt": "test"}
"""Splits of MRPC's original files; pairs of ids select GLUE's development set from the first."""
_DEV_IDS = ("mrpc_dev_ids.tsv", "dev_ids.tsv")
_PAIR_OF_IDS = ("#1 ID", "#2 ID")


class Mrpc(ColumnsTask):
    """MRPC, also in Microsoft's original files, with pairs of ids for GLUE's development set."""

    def settle(self, files: dict[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
        """Add GLUE's training and development sets, both from the original training file and the
        ids.

        Without the ids, all rows of the original are the training set.
        """
        for parent in {paths[0].parent for paths in files.values()}:
            train = parent / next(iter(_ORIGINAL))
            ids = next((parent / name for name in _DEV_IDS if (parent / name).is_file()), None)
            if ids is None or not train.is_file():
                continue
            if files.get("train", (train,)) == (train,):
                files["train"] = (train, ids)
            files.setdefault("dev", (train, ids))
        return files

    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read a split of GLUE's files, the hub's copies, or the original training file.

        Raises DataError also for a row of the id file that is not a pair of ids.
        """
        if len(paths) == 1 or paths[1].name not in _DEV_IDS:
            return super().read(split, paths)
        train, ids = paths
        result = ReadSplit(split, paths)
        lines_of_ids: dict[tuple[str, ...], str] = {}
        for line, cells in read_tsv(ids):
            pair = tuple(cell.strip() for cell in cells)
            if pair == ("",):
                continue
            if len(pair) != len(_PAIR_OF_IDS) or not all(map(str.isdigit, pair)):
                raise DataError(f"{ids}:{line}: {' '.join(pair)!r} is not a pair of ids")
            lines_of_ids[pair] = f"{ids}:{line}"
        rows = [
            (None if row.problem else tuple(map(row.text, _PAIR_OF_IDS)), row)
            for row in self.records(train)
        ]
        is_dev = split == "dev"
        if is_dev:
            in_train = {pair for pair, _ in rows}
            for pair, place in lines_of_ids.items():
                if pair not in in_train:
                    result.skip("a pair of ids that the training file lacks", place)
        of_split = [row for pair, row in rows if (pair in lines_of_ids) == is_dev]
        self.add_rows(of_split, ids if is_dev else train, result)
        return result


class Rte(ColumnsTask):
    """RTE, also from the XML files of its challenges; SuperGLUE's folder has the same name."""

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file of GLUE, or of a challenge."""
        return xml_records(path) if suffix_of(path) == ".xml" else super().records(path)

    def settle(self, files: dict[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
        """Return the files, or none where one is SuperGLUE's, or XML of another task."""
        for path, *_ in files.values():
            if suffix_of(path) == ".tsv":
                continue
            is_xml = suffix_of(path) == ".xml"
            try:
                first = next((xml_records if is_xml else read_records)(path), None)
            except DataError:
                if is_xml:
                    return {}
                continue
            names = first.values if first else {}
            is_superglue = not is_xml and "premise" in names
            if is_superglue or (is_xml and not names.keys() & {"sentence1", "premise"}):
                return {}
        return files


def _fifths(example: Example) -> str | None:
    """Round a similarity to the nearest multiple of 0.2, halves to even, as TensorFlow does."""
    if not example.is_labelled or example.label is None:
        return None
    fifths = np.round(np.float32(example.label) * np.float32(5)) / np.float32(5)
    return f"{float(fifths):.1f}"


def _wnli_marked(example: Example) -> str:
    """Return the premise with its pronoun marked."""
    return as_pronoun(*example.fields.values())[0]


def _wnli_noun(example: Example) -> str:
    """Return the noun that the hypothesis puts in place of the premise's pronoun."""
    return as_pronoun(*example.fields.values())[1]


_PRONOUNS = ("he", "she", "they", "it", "her", "his", "their", "them", "him")
_ARTICLES = ("a", "an", "the")
_END = re.compile(r"[.,?!]$")


def as_pronoun(premise: str, hypothesis: str) -> tuple[str, str]:
    """Return the premise with its pronoun marked, and the noun that the hypothesis puts there.

    The pronoun is the one that shares most neighbouring words with the hypothesis, the first of
    equals. Where no noun replaces one, the premise stays unmarked and the noun is the whole
    hypothesis. Departure: T5 fails there.
    """
    words = premise.split()
    clean = [_END.sub("", word.lower()) for word in words]
    spoken = " ".join(_END.sub("", word.lower()) for word in hypothesis.split())
    backwards = " ".join(reversed(spoken.split(" ")))
    best: tuple[int, list[str], list[str]] | None = None
    for index, word in enumerate(clean):
        if word in _PRONOUNS:
            before = _shared(clean[:index][::-1], backwards)[::-1]
            after = _shared(clean[index + 1 :], spoken)
            if best is None or len(before) + len(after) > len(best[1]) + len(best[2]):
                best = index, before, after
    if best is None or not (best[1] or best[2]):
        return premise, hypothesis
    index, *neighbours = best
    # The noun: the words between the neighbours, or else before or after them at an end.
    left, right = ([re.escape(word) for word in side] for side in neighbours)
    patterns = [*left, "(.+)", *right], ["^(.+)", *right], [*left, "(.+)$"]
    matches = (re.search(" ".join(pattern), spoken) for pattern in patterns)
    match = next(filter(None, matches), None)
    if match is None:
        return premise, hypothesis
    noun = match[1].split(" ")
    # The match may begin too early: the noun begins at its last article.
    articles = [noun.index(article) for article in _ARTICLES if article in noun]
    noun = noun[max(articles, default=0) :]
    # The noun as the hypothesis writes it, never possessive, even where its pronoun is.
    pattern = " ".join(rf"{re.escape(word)}[.,?!]?" for word in noun)
    match = re.search(pattern, " ".join(hypothesis.split()), re.IGNORECASE)
    assert match, "the noun was found in the hypothesis"
    referent = _END.sub("", match[0])
    for possessive in ("'s", "'"):
        if referent.endswith(possessive):
            referent = referent.removesuffix(possessive)
            break
    word = words[index]
    words[index] = f"*{word[:-1]}* {word[-1]}" if _END.search(word) else f"*{word}*"
    return " ".join(words), referent


def _shared(words: list[str], text: str) -> list[str]:
    """Return the longest prefix of words that occurs consecutively in a text."""
    n_shared = 0
    while n_shared < len(words) and " ".join(words[: n_shared + 1]) in text:
        n_shared += 1
    return words[:n_shared]


def _release(name: str, file: str, sha256: str) -> Release:
    return Release.of(name, {_DATA + file: sha256})


GLUE = (
    ColumnsTask(
        task=Task("cola", "CoLA", "glue", "classes", ("sentence",), ("matthews",),
                  labels=("unacceptable", "acceptable")),
        layout=FileLayout(
            ("CoLA", "cola_public", "cola_public_1.1"), _SUITE,
            below=("", "data", "default", "raw"),
            joint={"in_domain_train.tsv": "train", "in_domain_dev.tsv": "dev",
                   "out_of_domain_dev.tsv": "dev"},
        ),
        without_header=("source", "label", "mark", "sentence"),
        release=_release("cola", "CoLA.zip",
                         "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff"),
        submission=(AnswerFile("CoLA.tsv", 1063, Prediction(1)),),
        averages=_AVERAGES,
    ),
    ColumnsTask(
        task=Task("sst2", "SST-2", "glue", "classes", ("sentence",), ("accuracy",),
                  labels=("negative", "positive")),
        layout=FileLayout(("SST-2",), _SUITE),
        release=_release("sst2", "SST-2.zip",
                         "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa"),
        submission=(AnswerFile("SST-2.tsv", 1821, Prediction(1)),),
        averages=_AVERAGES,
    ),
    Mrpc(
        task=Task("mrpc", "MRPC", "glue", "classes", _SENTENCES, ("f1", "accuracy"),
                  labels=("not_equivalent", "equivalent"), is_symmetric=True),
        layout=FileLayout(("MRPC",), _SUITE, own=_ORIGINAL),
        columns={"sentence1": ("sentence1", "#1 String"), "sentence2": ("sentence2", "#2 String")},
        label=("label", "Quality"),
        release=Release.of("mrpc", {
            _SENTEVAL + "msr_paraphrase_train.txt":
                "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
            _SENTEVAL + "msr_paraphrase_test.txt":
                "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
            _DATA + "mrpc_dev_ids.tsv":
                "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
        }),
        submission=(AnswerFile("MRPC.tsv", 1725, Prediction(1)),),
        averages=_AVERAGES,
    ),
    ColumnsTask(
        task=Task("qqp", "QQP", "glue", "classes", ("question1", "question2"), ("f1", "accuracy"),
                  labels=("not_duplicate", "duplicate"), is_symmetric=True),
        layout=FileLayout(("QQP", "QQP-clean"), _SUITE, own={_QUORA: "train"}),
        label=("is_duplicate", "label"),
        quoted=(_QUORA,),
        release=_release("qqp", "QQP-clean.zip",
                         "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0"),
        submission=(AnswerFile("QQP.tsv", 390965, Prediction(0), position=1),),
        averages=_AVERAGES,
    ),
    ColumnsTask(
        task=Task("stsb", "STS-B", "glue", "number", _SENTENCES, ("pearson", "spearman"),
                  is_symmetric=True, numbers=(0.0, 5.0)),
        layout=FileLayout(("STS-B", "sts", "stsbenchmark"), _SUITE),
        label=("score", "label"),
        # Source: the archive of the STS benchmark, where some rows end with two licences.
        without_header=("genre", "filename", "year", "old_index", "score", "sentence1",
                        "sentence2", "licence1", "licence2"),
        may_end_early=True,
        wording=partial(Wording, target=_fifths),
        release=_release("stsb", "STS-B.zip",
                         "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85"),
        submission=(AnswerFile("STS-B.tsv", 1379, Prediction(2.701)),),
        averages=_AVERAGES,
    ),
    ColumnsTask(
        task=Task("mnli", "MNLI", "glue", "classes", _PREMISE, ("accuracy",),
                  labels=_THREE_WAY, splits=_MATCHED),
        layout=FileLayout(("MNLI", "multinli", "multinli_1.0"), _SUITE,
                          suffixes=(*SUFFIXES, ".txt")),
        columns=_INFERENCE,
        label=("gold_label", "label"),
        source="premise",
        no_labels={"-": _NO_MAJORITY},
        release=_release("mnli", "MNLI.zip",
                         "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633"),
        submission=(
            AnswerFile("MNLI-m.tsv", 9796, Prediction(0), _THREE_WAY, "test_matched"),
            AnswerFile("MNLI-mm.tsv", 9847, Prediction(0), _THREE_WAY, "test_mismatched"),
        ),
        averages=_AVERAGES,
    ),
    ColumnsTask(
        task=Task("qnli", "QNLI", "glue", "classes", ("question", "sentence"), ("accuracy",),
                  labels=_ENTAILMENT),
        layout=FileLayout(("QNLI", "QNLIv2"), _SUITE),
        source="question",
        release=_release("qnli", "QNLIv2.zip",
                         "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5"),
        submission=(AnswerFile("QNLI.tsv", 5463, Prediction(0), _ENTAILMENT),),
        averages=_AVERAGES,
    ),
    Rte(
        task=Task("rte", "RTE", "glue", "classes", _SENTENCES, ("accuracy",), labels=_ENTAILMENT),
        layout=FileLayout(("RTE",), _SUITE, joint=RTE_FILES),
        source="sentence1",
        release=_release("rte", "RTE.zip",
                         "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee"),
        submission=(AnswerFile("RTE.tsv", 3000, Prediction(0), _ENTAILMENT, position=2),),
        averages=_AVERAGES,
    ),
    ColumnsTask(
        task=Task("wnli", "WNLI", "glue", "classes", _SENTENCES, ("accuracy",),
                  labels=_ENTAILMENT[::-1]),
        layout=FileLayout(("WNLI",), _SUITE),
        source="sentence1",
        # Text to text: the hypothesis's noun in place of the premise's pronoun; evaluated only, by
        # a model of WSC or DPR. Source: T5's ``wnli_simple``, which its authors checked by hand on
        # the development and test sets.
        wording=partial(
            Wording, target=_wnli_noun, ranks="", learns="", **marking(_wnli_marked, "pronoun"),
            parts={"sentence1": "Ann told Eve that she won.", "sentence2": "Eve won."},
        ),
        release=_release("wnli", "WNLI.zip",
                         "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46"),
        submission=(AnswerFile("WNLI.tsv", 146, Prediction(0), position=2),),
        averages=_AVERAGES[:1],
    ),
    ColumnsTask(
        task=Task("ax", "AX", "glue", "classes", _PREMISE, ("matthews",), labels=_THREE_WAY,
                  splits=("dev", "test"), trained_as="mnli"),
        layout=FileLayout(("AX", "diagnostic", "diagnostics"), _SUITE, own=_DIAGNOSTIC),
        # Some copies are in MNLI's folder; its models answer this set.
        beside=FileLayout(("MNLI",), _SUITE, own=_DIAGNOSTIC, suffixes=()),
        columns=_INFERENCE,
        label=("Label", "label"),
        source="premise",
        wording=partial(Wording, name="mnli"),
        release=_release("ax", "AX.tsv",
                         "0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd"),
        submission=(AnswerFile("AX.tsv", 1104, Prediction(0), _THREE_WAY, position=2),),
    ),
)  # fmt: skip
_TEXTS = {"premise": ("premise", "sentence1"), "hypothesis": ("hypothesis", "sentence2")}
NLI = (
    ColumnsTask(
        task=Task("snli", "SNLI", "nli", "classes", _PREMISE, ("accuracy",), labels=_THREE_WAY),
        layout=FileLayout(("SNLI", "snli_1.0"), below=("", "data", "plain_text"),
                          suffixes=(*SUFFIXES, ".txt")),
        columns=_TEXTS,
        label=("gold_label", "label"),
        ids=("pairID", "idx", "index", "id"),
        source="premise",
        # The hub's copies write -1 for no majority, in the test split too.
        no_labels={"-": _NO_MAJORITY, "-1": _NO_MAJORITY},
        may_end_early=True,
        release=Release.of("snli", {
            "https://nlp.stanford.edu/projects/snli/snli_1.0.zip":
                "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
        }),
    ),
    ColumnsTask(
        task=Task("scitail", "SciTail", "nli", "classes", _PREMISE, ("accuracy",),
                  labels=("entailment", "neutral")),
        layout=FileLayout(
            ("SciTail", "SciTailV1.1", "scitail_1.0", "scitail_1.0_structure"),
            below=("", "data", "tsv_format", "snli_format", "predictor_format"),
            suffixes=(*SUFFIXES, ".txt"),
        ),
        columns=_TEXTS,
        label=("gold_label", "label"),
        # A hypothesis is a question with its answer, and has several premises.
        source="hypothesis",
        without_header=("premise", "hypothesis", "label"),
        synonyms={"entails": "entailment"},
        release=Release.of("scitail", {
            "http://data.allenai.org.s3.amazonaws.com/downloads/SciTailV1.1.zip":
                "3fccd37350a94ca280b75998568df85fc2fc62843a3198d644fcbf858e6943d5",
        }, keeps=r"[^/]+/tsv_format/[^/]+\.tsv"),
    ),
)  # fmt: skip
