"""Layouts written out; whole models, LSTMs too: no leak, padding, documents, caches, heads."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from sublayer.api.run import load
from sublayer.config.objective import CausalObjective
from sublayer.config.stacks import HEADS, AttentionForm, HeadRow, attention_forms, stacks
from sublayer.data.batches import Batch
from sublayer.decode.sample import Sampling, generate
from sublayer.errors import ConfigError
from sublayer.model.cache import Cache
from sublayer.model.context import Layout
from sublayer.model.estimates import count_parameters
from sublayer.model.layers import Linear
from sublayer.model.model_folder import save_model
from sublayer.model.parameters import parameter_roles
from sublayer.objective.causal import Causal

from .conftest import MAX_LEN, VOCAB_SIZE, check_gradients, close, make_config, random_model

MODELS = [
    {"positions": "learned", "n_layers": 4, "share": "attention", "share_inner": 2},
    {"positions": "learned-per-layer", "norm_order": "post"},
    {"positions": "sinusoidal", "block": "macaron", "embedding_scale": "sqrt"},
    {"positions": "rotary", "norm": "rms", "ffn": "geglu", "share": "all", "d_embed": 5},
    {"positions": "none", "norm": "none", "attention_scale": "none"},
    {"positions": "alibi", "norm_order": "around", "block": ["attention+ffn"]},
    {"positions": "relative", "relative_buckets": 8, "relative_distance": 7}, {"kind": "lstm"},
]  # fmt: skip
LOCAL = {"attention_window": 3, "window_pattern": "LG", "positions": "rotary", "n_layers": 3}
each_model = pytest.mark.parametrize("fields", MODELS, ids=str)
SHARED = {"share": "all", "share_groups": 2, "positions": "rotary"}
BLOCK = {"decoder_block": ["attention", "ffn*0.5", "cross*2", "ffn"], "embedding_norm": "affine"}
TOKENS = torch.tensor([[4, 2, 3, 1], [5, 6, 0, 0]])
INPUTS = torch.arange(20).view(2, 10) % VOCAB_SIZE
BATCH = Batch(INPUTS, INPUTS.flip(1), None)
P = 0.25
MATRIX = {"dropout_embedding": P, "dropout_embedding_of": "matrix"}
N_TOKENS = 11


def seen(layout, row=0):
    return ["".join(".x"[int(allowed)] for allowed in query) for query in layout.mask[row, 0]]


def zeros(*shape):
    return torch.zeros(shape, dtype=torch.long)


def test_padding_shifts_positions_behind_it_and_is_seen_by_itself_only():
    layout = Layout.causal(zeros(2, 4), torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]]).bool())
    assert layout.positions[0, 2:].tolist() == layout.positions[1, :2].tolist() == [0, 1]
    assert seen(layout) == ["x...", ".x..", "..x.", "..xx"]
    assert seen(layout, 1) == ["x...", "xx..", "xxx.", "xx.x"]


def test_positions_and_attention_restart_with_each_document():
    layout = Layout.causal(zeros(1, 5), document_ids=torch.tensor([[7, 7, 3, 3, 7]]))
    assert layout.positions.tolist() == [[0, 1, 0, 1, 0]]
    assert seen(layout) == ["x....", "xx...", "..x..", "..xx.", "....x"]
    documents = torch.tensor([[0, 0, 1, 1, 1, -1]])
    layout = Layout.bidirectional(zeros(1, 6), documents >= 0, documents)
    assert layout.positions[0, :5].tolist() == [0, 1, 0, 1, 2]
    assert seen(layout) == [*["xx...."] * 2, *["..xxx."] * 3, ".....x"]


def test_a_window_ends_at_its_query_or_has_a_half_on_either_side():
    mask = torch.tensor([[0, 1, 1, 1, 1, 1]]).bool()
    three, two = AttentionForm(window=3), AttentionForm(window=2)
    layout = Layout.causal(zeros(1, 6), mask).within(three)
    assert seen(layout) == ["x.....", ".x....", ".xx...", ".xxx..", "..xxx.", "...xxx"]
    layout = Layout.bidirectional(zeros(1, 6), mask).within(two)
    assert seen(layout) == ["xx....", ".xx...", ".xxx..", "..xxx.", "...xxx", "....xx"]
    layout = Layout.causal(zeros(1, 5), document_ids=torch.tensor([[7, 7, 7, 3, 3]])).within(two)
    assert seen(layout) == ["x....", "xx...", ".xx..", "...x.", "...xx"]
    # Of a past of five tokens the first of two queries sees two.
    layout = Layout.causal(zeros(1, 2), past=5).within(three)
    keys = layout.keys.band(2, layout.n_keys, torch.device("cpu"))
    assert keys.tolist() == [[True, True, True, False], [False, True, True, True]]
    whole = Layout.causal(zeros(1, 3))
    assert whole.within(three) is whole


def test_a_past_continues_positions_and_its_padding_is_not_seen_and_not_counted():
    layout = Layout.causal(zeros(2, 3), past=4)
    assert (layout.positions.tolist(), layout.key_positions.tolist()) == ([4, 5, 6], [*range(7)])
    assert layout.mask is None and layout.keys.is_causal
    mask, past_mask = (torch.tensor(m).bool() for m in ([[1, 1, 1], [1, 0, 1]], [[0, 1], [1, 0]]))
    layout = Layout.causal(zeros(2, 3), mask, past=2, past_mask=past_mask)
    assert layout.key_positions.tolist() == [[0, 0, 1, 2, 3], [0, 1, 1, 2, 2]]
    assert torch.equal(layout.key_positions[:, 2:], layout.positions)
    assert seen(layout) == [".xx..", ".xxx.", ".xxxx"]


def test_a_target_sees_the_source_of_its_document_alone_but_for_its_padding():
    # Two documents and padding were read in the first row, one in the second.
    read = torch.tensor([[0, 0, 1, 1, -1], [0, 0, 0, 0, 0]])
    written = torch.tensor([[0, 1, 1, -1], [0, 0, -1, -1]])
    layout = Layout.reading(zeros(2, 5), read >= 0, read, written)
    assert seen(layout) == ["xx...", "..xx.", "..xx.", "....x"]
    # Padding that finds none of its own sees the row, so that no softmax is empty.
    assert seen(layout, 1) == ["xxxxx"] * 4
    assert not layout.keys.is_causal and layout.n_keys == 5
    layout = Layout.reading(zeros(2, 3), torch.tensor([[1, 1, 0], [0, 0, 0]]).bool())
    assert [seen(layout, row) for row in range(2)] == [["xx."], ["xxx"]]
    assert Layout.reading(zeros(2, 3)).mask is None


def draw_tokens(n_rows, n_tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB_SIZE, (n_rows, n_tokens), generator=generator)


@pytest.mark.parametrize("fields", [*MODELS, LOCAL], ids=str)
def test_tokens_of_the_future_other_rows_and_other_documents_change_nothing(fields):
    model, tokens = random_model(**fields), draw_tokens(3, 11)
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % VOCAB_SIZE
    before, after = model(tokens).logits, model(changed).logits
    close(after[:, :7], before[:, :7])
    assert (after[:, 7:] != before[:, 7:]).any(-1).all()
    close(before, torch.cat([model(row[None]).logits for row in tokens]))
    ids = torch.tensor([[4] * 5 + [9] * 6]).expand(3, -1)
    hidden = model.hidden(tokens, Layout.causal(tokens, document_ids=ids)).final
    parts = [model(tokens[:, :5]).logits, model(tokens[:, 5:]).logits]
    close(model.logits(hidden), torch.cat(parts, dim=1))


@each_model
def test_rows_padded_anywhere_are_read_and_decode_as_they_would_alone(fields):
    model, tokens = random_model(**fields), draw_tokens(4, 11)
    # Padding on either side of the first piece, or all of it: tokens continue from the real ones.
    real = [[1] * 5, [0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0] * 5]
    mask, cache = torch.tensor(real).bool(), Cache(model.config, 4, 11, torch.float64)
    found = [model(tokens[:, :5], mask, cache=cache).logits]
    pieces = tokens[:, 5:].split([3, 1, 1, 1], dim=1)
    found += [model(piece, cache=cache).logits for piece in pieces]
    cached, is_read = torch.cat(found, dim=1), F.pad(mask, (0, 6), value=True)
    padded = model(tokens, is_read).logits
    for row in range(4):
        alone = model(tokens[row, is_read[row]][None]).logits[0]
        close(padded[row, is_read[row]], alone, 1e-10)
        close(cached[row, is_read[row]], alone, 1e-9)


@pytest.mark.parametrize("fields", [
    LOCAL, {**LOCAL, "rotary_local_base": 9.0, "position_pattern": "PPN", "share": "all"},
    {**LOCAL, "positions": "alibi", "block": ["attention", "ffn", "attention"]},
    {**LOCAL, "positions": "relative", "window_pattern": "L", "attention_window": 1},
], ids=str)  # fmt: skip
@torch.no_grad()
def test_a_ring_of_keys_continues_rows_padded_at_their_left(fields):
    model, tokens = random_model(**fields), draw_tokens(2, 11)
    mask = torch.arange(11) >= torch.tensor([[4], [0]])
    cache = Cache(model.config, 2, 11, torch.float64)
    pieces = zip(*(each.split([5, 1, 1, 4], dim=1) for each in (tokens, mask)), strict=True)
    cached = torch.cat([model(piece, real, cache=cache).logits for piece, real in pieces], dim=1)
    for logits in (cached, model(tokens, mask).logits):
        close(logits[0, 4:], model(tokens[:1, 4:]).logits[0], 1e-11)
        close(logits[1], model(tokens[1:]).logits[0], 1e-11)


def test_a_pattern_counts_the_attentions_that_are_executed():
    fields = {"attention_window": 4, "n_layers": 2, "share": "all"}
    two = {"block": ["attention", "ffn", "attention"], "position_pattern": "PNN"}
    config = make_config(window_pattern="LLG", positions="rotary", **two, **fields)
    local, without = AttentionForm(4), AttentionForm(4, has_positions=False)
    forms = [(local, None, without), (AttentionForm(None, has_positions=False), None, local)]
    assert attention_forms(config, *stacks(config)) == forms
    model = random_model(window_pattern="LLG", positions="rotary", **two, **fields)
    assert [[model.forms[n] for n in numbers] for numbers in model.form_numbers] == [
        [local, local, without], [forms[1][0], local, local]
    ]  # fmt: skip


def test_a_cache_has_an_end_and_shared_layers_have_keys_of_their_own():
    model = random_model(n_layers=3, share="all", positions="rotary")
    cache = Cache(model.config, 1, 4, torch.float64)
    model(torch.tensor([[1, 2, 3]]), cache=cache)
    assert len({id(cache.key_values(layer, 0)) for layer in range(3)}) == 3
    assert cache.key_values(0, 1) is None  # a feed-forward network keeps nothing
    with pytest.raises(ConfigError, match=r"3 \+ 2 tokens do not fit into a cache of max_len = 4"):
        model(torch.tensor([[4, 5]]), cache=cache)
    assert cache.length == 3
    tokens = draw_tokens(1, 20)
    model = random_model()
    cache = Cache(model.config, 1, 20, torch.float64)
    model(tokens[:, :13], cache=cache)
    with pytest.raises(ConfigError, match=r"14 tokens exceeds model.max_len = 13"):
        model(tokens[:, 13:14], cache=cache)


@pytest.mark.parametrize("place", ["", "_attention", "_embedding", "_final"])
def test_dropout_acts_in_training_only_and_repeats_under_a_seed(place):
    rates = {**dict.fromkeys(("_attention", "_ffn", "_embedding", ""), 0.0), place: 0.5}
    model = random_model(**{f"dropout{of}": rate for of, rate in rates.items()})
    plain, tokens = random_model(), torch.arange(10).view(2, 5)
    assert torch.equal(model(tokens).logits, plain(tokens).logits)
    model.train()
    torch.manual_seed(6)
    first = model(tokens).logits
    torch.manual_seed(6)
    assert torch.equal(model(tokens).logits, first)
    assert not torch.equal(model(tokens).logits, first)
    assert not torch.allclose(first, plain(tokens).logits)


@pytest.mark.parametrize("fields", [SHARED, BLOCK], ids=str)
def test_a_target_sees_all_of_its_source_and_nothing_of_its_future(fields):
    model = random_model(kind="encoder-decoder", **fields)
    source, target = draw_tokens(1, 8, 1), draw_tokens(1, 6, 2)
    logits = model(source, target=target).logits
    logits.square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in model.parameters())
    other = target.clone()
    other[:, 4:] = (other[:, 4:] + 1) % VOCAB_SIZE
    changed = (model(source, target=other).logits - logits).abs().amax((0, 2))
    assert changed[:4].max() == 0.0 and changed[4:].min() > 0.0
    for place in (0, 7):
        other = source.clone()
        other[:, place] = (other[:, place] + 1) % VOCAB_SIZE
        assert (model(other, target=target).logits - logits).abs().amax((0, 2)).min() > 0.0


@pytest.mark.parametrize("is_tied, d_embed, head_bias, head", [
    (True, 6, False, "linear"), (False, 5, True, "transform"),
])  # fmt: skip
def test_logits_are_the_output_matrix_times_the_scaled_state(is_tied, d_embed, head_bias, head):
    fields = {"tie_embeddings": is_tied, "d_embed": d_embed, "head": head}
    model = random_model(**fields, head_bias=head_bias)
    hidden = torch.randn(2, 3, 6, dtype=torch.float64)
    matrix, bias, _ = model.output_projection()
    close(model.logits(hidden), F.linear(model.to_embedding(hidden), matrix, bias))
    is_shared = matrix is model.embedding.weight
    assert is_shared == is_tied == ("head.weight" not in model.state_dict())
    assert (bias is None) == (not head_bias)
    assert model.to_embedding(hidden).shape == (2, 3, d_embed)
    plain, scaled = random_model(**fields), random_model(output_scale="sqrt", **fields)
    tokens = torch.arange(6).view(2, 3)
    close(scaled(tokens).logits, plain(tokens).logits / 6**0.5)


class Tags(Linear):
    """Predict the kind of each token, of three."""

    def __init__(self, config):
        super().__init__(config.d_model, 3, bias=False)

    def forward(self, states, table):
        return super().forward(states)


class TagsRow(HeadRow):
    implementation, attribute, title, reads = f"{__name__}:Tags", "tags", "tags", "positions"

    def is_asked(self, config):
        return True

    def n_parameters(self, config):
        return 3 * config.d_model

    n_products = n_parameters


def run(model, tokens, mask=None):
    if model.config.kind == "encoder-decoder":
        return model(TOKENS[:1].expand(len(tokens), -1), target=tokens, target_mask=mask)
    return model(tokens, mask)


@pytest.mark.parametrize("kind", ["encoder", "encoder-decoder"])
def test_a_head_is_a_class_and_a_row_on_every_kind_of_model(kind, tmp_path, monkeypatch):
    fields = {"pooler": "tanh", "sentence_classes": 2}
    assert list(random_model(kind=kind).heads) == ["vocabulary"]
    assert list(random_model(kind=kind, **fields).heads) == ["vocabulary", "pooler", "sentence"]
    monkeypatch.setitem(HEADS, "tags", TagsRow())
    model = random_model(kind=kind, **fields).float()
    assert parameter_roles(model)["tags.weight"] == "matrix"
    n_parameters = sum(each.numel() for each in model.parameters())
    assert count_parameters(model.config).total == n_parameters
    tokens = torch.arange(10).view(2, 5)
    output = run(model, tokens)
    shapes = {"vocabulary": [2, 5, 17], "pooler": [2, 6], "sentence": [2, 2], "tags": [2, 5, 3]}
    assert {name: list(each.shape) for name, each in output.items()} == shapes
    assert output.logits is output["vocabulary"]
    assert output.sentence_logits is output["sentence"]
    save_model(tmp_path / "model", model, {})
    close(run(load(tmp_path / "model"), tokens)["tags"], output["tags"])
    mask = torch.tensor([[True, True, True, False, False]]).expand(2, -1)
    alone, padded = run(model, tokens[:, :3]), run(model, tokens, mask)
    close(padded.sentence_logits, alone.sentence_logits, 1e-5)


def test_a_softmax_over_positions_too_has_the_loss_of_the_whole_matrix():
    model = random_model(softmax="all", head="transform")
    found = Causal(model, CausalObjective(z_loss=0.01))(BATCH)
    # As the released code does: of the one matrix, and its softmax.
    weights = dict(model.named_parameters())
    matrix = torch.cat([weights["embedding.weight"], weights["positions.tables.0.weight"]])
    final = model.hidden(INPUTS, Layout.causal(INPUTS)).final
    scores = model.to_embedding(final) @ matrix.T
    log_p = scores.log_softmax(-1)
    expected = -log_p.gather(-1, BATCH.targets[..., None]).sum()
    torch.testing.assert_close(found["lm"], expected)
    trained = expected + 0.01 * scores.logsumexp(-1).square().sum()
    check_gradients(found["trained"], trained, list(model.parameters()), 1e-9)
    close(model(INPUTS).logits.log_softmax(-1), log_p)


def test_positions_have_no_bias_and_are_never_generated():
    model = random_model(softmax="all", head_bias=True)
    with torch.no_grad():
        model.positions.input_table.zero_()
        model.head.bias.zero_()
    plain = random_model(head_bias=True)
    plain.load_state_dict(model.state_dict())
    logits = plain(INPUTS).logits
    # So many logits of 0, for they have no bias either.
    log_z = torch.cat([logits, logits.new_zeros(2, 10, MAX_LEN)], -1).logsumexp(-1)
    found = model(INPUTS).logits.log_softmax(-1)
    close(found[..., :VOCAB_SIZE], logits - log_z[..., None])
    model = random_model(softmax="all", n_layers=1)
    with torch.no_grad():
        # Far likelier than any token.
        model.positions.input_table.mul_(30.0)
    written = generate(model, INPUTS[:, :3], 40, Sampling(temperature=2.0), context=8)
    assert torch.stack(list(written)).max() < VOCAB_SIZE


def test_elements_of_the_matrix_are_dropped_one_by_one_and_the_rest_is_scaled():
    model = random_model(d_model=60, d_ff=8, **MATRIX).train()
    torch.manual_seed(0)
    matrix, originals = model.drop_matrix(), (model.embedding.weight, model.positions.input_table)
    for table, original in zip((matrix.tokens, matrix.positions), originals, strict=True):
        is_kept = table != 0
        rate = 1 - is_kept.double().mean().item()
        assert abs(rate - P) < 4 * (P * (1 - P) / table.numel()) ** 0.5
        torch.testing.assert_close(table[is_kept], original[is_kept] / (1 - P))
        # Neither rows nor columns.
        assert 0 < is_kept.double().mean(0).min() < is_kept.double().mean(0).max() < 1.01
        assert is_kept.any(1).all()
    other = model.drop_matrix()
    assert not torch.equal(other.tokens, matrix.tokens)
    model.eval()
    assert model.hidden(INPUTS, Layout.causal(INPUTS)).matrix is None


@pytest.mark.parametrize(("softmax", "is_tied"), [("tokens", False), ("all", True)])
def test_lookup_and_logits_have_the_same_dropped_matrix(softmax, is_tied):
    fields = {"softmax": softmax, "tie_embeddings": is_tied}
    model = random_model(**fields, **MATRIX).train()
    torch.manual_seed(3)
    matrix = model.drop_matrix()
    tokens, positions = matrix.tokens, matrix.positions
    # The same model of these tables, without dropout.
    plain = random_model(**fields)
    tables = {"embedding.weight": tokens, "positions.tables.0.weight": positions}
    plain.load_state_dict({**model.state_dict(), **tables})
    torch.manual_seed(3)
    loss = Causal(model)(BATCH)["lm"]
    torch.testing.assert_close(loss, Causal(plain)(BATCH)["lm"])
    torch.manual_seed(3)
    close(model(INPUTS).logits, plain(INPUTS).logits)
    loss.backward()
    if is_tied:
        assert torch.equal(model.embedding.weight.grad != 0, tokens != 0)
        assert torch.equal(model.positions.input_table.grad != 0, positions != 0)
    torch.manual_seed(3)
    entered = model.embed_tokens(INPUTS, torch.arange(10))
    close(entered, F.embedding(INPUTS, tokens) + positions[:10])


def test_a_model_equals_an_embedding_an_lstm_and_a_tied_output_of_pytorch():
    model, tokens = random_model(kind="lstm"), draw_tokens(3, N_TOKENS)
    table = nn.Embedding(VOCAB_SIZE, 6).double()
    lstm = nn.LSTM(6, 6, num_layers=2, batch_first=True).double()
    pairs = [(model.embedding.weight, table.weight)]
    for layer in range(2):
        for name, value in model.stack.block(layer)[0].function.named_parameters():
            pairs.append((value, getattr(lstm, name.replace("l0", f"l{layer}"))))
    with torch.no_grad():
        for own, other in pairs:
            other.copy_(own)
    ours, theirs = model(tokens).logits, lstm(table(tokens))[0] @ table.weight.T
    close(ours, theirs)
    ours.square().mean().backward()
    theirs.square().mean().backward()
    for own, other in pairs:
        close(own.grad, other.grad)


@pytest.mark.parametrize("fields", [{"kind": "lstm"}, LOCAL], ids=str)
def test_rows_of_a_cache_continue_apart(fields):
    model, tokens = random_model(**fields), draw_tokens(3, N_TOKENS)
    cache = Cache(model.config, 3, N_TOKENS, torch.float64)
    model(tokens[:, :5], cache=cache)
    rows = torch.tensor([2, 0, 0, 1])
    cache.take_rows(rows)
    further = draw_tokens(4, 3, seed=1)
    joined = torch.cat([tokens[rows, :5], further], dim=1)
    close(model(further, cache=cache).logits, model(joined).logits[:, 5:])


@pytest.mark.parametrize("lengths", [(11, 6, 9, 0), (11, 2, 1, 0)], ids=["whole", "packed"])
def test_padding_behind_changes_nothing_and_gets_no_gradient(lengths):
    model, tokens = random_model(kind="lstm"), draw_tokens(4, N_TOKENS)
    mask = torch.arange(N_TOKENS) < torch.tensor(lengths)[:, None]
    layout = Layout.causal(tokens, mask)
    assert layout.runs is not None and layout.runs.is_one_a_row
    assert (layout.runs.real_share >= 0.5) == (lengths[1] == 6)
    final = model.hidden(tokens, layout).final
    assert not final[~mask].any()
    final.square().sum().backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    model.zero_grad()
    for row, length in enumerate(lengths[:3]):
        own = tokens[row : row + 1, :length]
        alone = model.hidden(own, Layout.causal(own)).final
        close(final[row, :length], alone[0])
        alone.square().sum().backward()
    for name, each in model.named_parameters():
        torch.testing.assert_close(gradients[name], each.grad, rtol=0, atol=1e-12)


def test_documents_of_a_row_are_read_apart_and_packed_as_pytorch_packs_them():
    model, tokens = random_model(kind="lstm"), draw_tokens(2, N_TOKENS)
    ids = torch.tensor([[0] * 4 + [1] * 7, [3, 2, 2, 2, 5, 5, 5, 5, 5, 6, 6]])
    layout = Layout.causal(tokens, document_ids=ids)
    packed = model.hidden(tokens, layout).final
    for row, numbers in enumerate(ids):
        for number in numbers.unique():
            document = tokens[row][numbers == number][None]
            alone = model.hidden(document, Layout.causal(document)).final[0]
            close(packed[row][numbers == number], alone)
    tokens, batch_sizes, _ = layout.runs.packing()
    theirs = pack_sequence([torch.arange(length) for length in (7, 5, 4, 3, 2, 1)])
    assert torch.equal(batch_sizes, theirs.batch_sizes)
    assert sorted(tokens.tolist()) == list(range(2 * N_TOKENS))
