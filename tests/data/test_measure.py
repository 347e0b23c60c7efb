import pytest

from sublayer.data.measure import cut_text, measure_tokenizer
from sublayer.data.prepare import prepare_text
from sublayer.data.subword import SubwordTokenizer
from sublayer.data.tokenizer import train_tokenizer


def test_a_report_counts_text_without_ends(tmp_path, cache):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_bytes(b"aaaa bbbb")
    tokenizer = SubwordTokenizer.train([b"aaaa bbbb aaaa"], vocab_size=261)
    report = measure_tokenizer(prepare_text(tokenizer, path=str(tmp_path / "*.txt"), cache=cache))
    # Four merges: aa, aaaa, bb, and the blank with bb; so each text is aaaa, blank bb, bb.
    assert (report.kind, report.vocab_size, report.n_bytes) == ("bpe", 261, 27)
    assert (report.n_tokens, report.n_used, report.n_unknown, report.is_lossless) == (9, 3, 0, True)
    assert report.bytes_per_token == pytest.approx(3.0)


def test_a_report_counts_what_is_unknown(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(b"abxay")
    tokenizer = train_tokenizer("characters", [b"abc"])
    report = measure_tokenizer(prepare_text(tokenizer, path=str(tmp_path / "a.txt"), cache=cache))
    assert (report.n_tokens, report.n_used, report.n_unknown, report.is_lossless) == (5, 3, 2, False)


def test_a_text_is_shown_as_it_is_cut():
    tokenizer = SubwordTokenizer.train([b"aaaa bbbb aaaa"], vocab_size=261)
    assert cut_text(tokenizer, "aaaa é bbbb".encode()) == [b"aaaa", b" ", b"\xc3", b"\xa9", b" bb", b"bb"]
