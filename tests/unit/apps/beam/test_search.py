"""Soft beam search: hard beam search in the limit, against plain searches; its gradients and its memory."""

import math

import pytest
import torch
from torch.autograd import gradcheck

import khot
from khot.apps.beam import BeamState, soft_beam_search, soft_beam_step, soft_hamming_loss
from strategies.sequence_oracles import Recurrent, beam_search, exhaustive

EOS, START = 0, 1


def found_lists(result, row=0):
    """Sequences without what follows the end."""
    return [
        tokens[:length]
        for tokens, length in zip(result.sequences[row].tolist(), result.lengths[row].tolist(), strict=True)
    ]


def running(scores):
    """A state in which hypotheses with these scores run, and none has ended."""
    at_start = BeamState.start(torch.zeros(len(scores), dtype=torch.long))
    tokens = torch.zeros(scores.shape, dtype=torch.long)
    return at_start._replace(scores=scores, tokens=tokens, length=1)


@pytest.mark.parametrize("limit", [{"hard": True}, {"temperature": 1e-5}])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(("penalty", "embedded"), [(0.0, True), (1.0, False)])
def test_the_limit_is_beam_search(limit, k, penalty, embedded):
    for seed in range(2):
        model = Recurrent(5, seed=seed)
        hidden = model.start()
        result = soft_beam_search(
            model.embedded_step if embedded else model.token_step,
            hidden,
            k,
            start=START,
            eos=EOS,
            max_length=7,
            embedding=model.embedding if embedded else None,
            length_penalty=penalty,
            **limit,
        )
        expected = beam_search(model, hidden[0], START, EOS, 7, k, penalty)
        assert found_lists(result) == [tokens for _, tokens in expected]
        scores = torch.tensor([[score for score, _ in expected]], dtype=torch.float64)
        torch.testing.assert_close(result.scores, scores, atol=1e-5, rtol=1e-5)


def test_a_wide_beam_finds_the_best_of_all_sequences():
    for seed in range(3):
        model = Recurrent(3, seed=seed)
        hidden = model.start()
        result = soft_beam_search(model.token_step, hidden, 27, start=START, eos=EOS, max_length=4, hard=True)
        expected = exhaustive(model, hidden[0], START, EOS, 4)[:5]
        assert found_lists(result)[:5] == [tokens for _, tokens in expected]


def test_length_normalisation_changes_the_best():
    def best(seed, penalty):
        model = Recurrent(5, seed=seed)
        settings = {"start": START, "eos": EOS, "max_length": 7, "hard": True}
        found = soft_beam_search(model.token_step, model.start(), 4, length_penalty=penalty, **settings)
        return found_lists(found)[0]

    pairs = [(best(seed, 0.0), best(seed, 2.0)) for seed in range(6)]
    assert any(len(plain) < len(penalised) for plain, penalised in pairs)
    assert all(len(plain) <= len(penalised) for plain, penalised in pairs)


def test_batched_with_ends_at_different_times():
    model = Recurrent(5, seed=3)
    hidden = model.start(6)
    settings = {"eos": EOS, "pad": 4, "max_length": 8, "hard": True}
    together = soft_beam_search(model.token_step, hidden, 3, start=START, **settings)
    assert len(set(together.lengths[:, 0].tolist())) > 1
    for row in range(6):
        alone = soft_beam_search(model.token_step, hidden[row : row + 1], 3, start=START, **settings)
        assert found_lists(together, row) == found_lists(alone)
        torch.testing.assert_close(together.scores[row], alone.scores[0])
    past = torch.arange(together.sequences.shape[-1]) >= together.lengths.unsqueeze(-1)
    assert (together.sequences[past] == 4).all()
    starts = torch.tensor([1, 2, 1, 2, 1, 2])
    mixed = soft_beam_search(model.token_step, hidden, 3, start=starts, **settings)
    assert torch.equal(mixed.scores[::2], together.scores[::2])
    assert not torch.equal(mixed.scores[1::2], together.scores[1::2])


def nested_step(model):
    def step(tokens, hidden):
        log_probs, new = model.token_step(tokens, hidden["h"][0])
        return log_probs, {"h": (new,), "seen": hidden["seen"] + tokens, "fixed": hidden["fixed"]}

    return step


def test_a_nested_state_goes_with_its_hypothesis():
    model = Recurrent(5, seed=2)
    hidden = model.start(2)
    nested = {"h": (hidden,), "seen": torch.zeros(2, dtype=torch.long), "fixed": "a word"}
    sums = []

    def step(tokens, state):
        log_probs, new = nested_step(model)(tokens, state)
        sums.append(new["seen"])
        assert new["fixed"] == "a word"
        return log_probs, new

    plain = soft_beam_search(model.token_step, hidden, 3, start=START, max_length=5, hard=True)
    result = soft_beam_search(step, nested, 3, start=START, max_length=5, hard=True)
    assert torch.equal(result.sequences, plain.sequences)
    # Before the last step each hypothesis of the beam had seen the start and its own tokens.
    before = soft_beam_search(model.token_step, hidden, 3, start=START, max_length=4, hard=True)
    assert torch.equal(sums[-1], before.sequences.sum(-1) + START)


def test_gradients_by_differences():
    """Through two soft steps: scores, states and embeddings."""

    def outcome(embedding, cell, out):
        hidden = torch.linspace(-1, 1, 3, dtype=torch.float64).view(1, 3)

        def step(inputs, state):
            state = torch.tanh(state @ cell + inputs)
            return (state @ out).log_softmax(-1), state

        found = soft_beam_search(
            step, hidden, 2, start=START, eos=EOS, max_length=2, embedding=embedding, temperature=0.7
        )
        return found.scores, found.token_weights(), found.token_weights(1)

    model = Recurrent(4, size=3)
    leaves = [p.detach().clone().requires_grad_() for p in (model.embedding, model.cell, model.out)]
    assert gradcheck(outcome, leaves)


@pytest.mark.parametrize("method", ["softsort", "neuralsort", "sigmoid", "successive_softmax"])
@pytest.mark.parametrize("hard", [True, False])
def test_the_loss_has_a_gradient_everywhere(method, hard):
    model = Recurrent(5, seed=1)
    found = soft_beam_search(
        model.embedded_step,
        model.start(3),
        3,
        start=START,
        eos=EOS,
        max_length=5,
        embedding=model.embedding,
        method=method,
        hard=hard,
        temperature=0.5,
    )
    soft_hamming_loss(found, torch.randint(5, (3, 5))).backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 1e-6


@pytest.mark.full
def test_the_loss_can_be_trained():
    """From a random model three of four places become right; it may stop there, without a warm start."""
    model = Recurrent(5, seed=4, sharpness=0.5)
    hidden, target = model.start(), torch.tensor([[3, 2, 4, 0]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    settings = {"start": START, "eos": EOS, "max_length": 4}
    losses = []
    for _ in range(40):
        found = soft_beam_search(
            model.embedded_step, hidden, 3, embedding=model.embedding, temperature=0.5, **settings
        )
        loss = soft_hamming_loss(found, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 0.9
    assert losses[-1] < 0.3
    decoded = soft_beam_search(model.token_step, hidden, 3, hard=True, **settings)
    assert found_lists(decoded)[0][:3] == [3, 2, 4]


def test_token_weights_in_the_limit_are_the_sequences():
    model = Recurrent(5, seed=3)
    found = soft_beam_search(
        model.token_step, model.start(4), 3, start=START, eos=EOS, max_length=6, hard=True
    )
    for rank in range(3):
        expected = torch.nn.functional.one_hot(found.sequences[:, rank], 5).double()
        assert torch.equal(found.token_weights(rank), expected)
    soft = soft_beam_search(
        model.token_step, model.start(4), 3, start=START, eos=EOS, max_length=6, temperature=0.5
    )
    weights = soft.token_weights()
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.float64))
    assert ((weights > 0.01) & (weights < 0.99)).any()
    with pytest.raises(ValueError, match="rank must be in 0 … 2, got 3"):
        soft.token_weights(3)


def test_the_hamming_loss():
    model = Recurrent(5, seed=3)
    found = soft_beam_search(
        model.token_step, model.start(4), 2, start=START, eos=EOS, max_length=6, hard=True
    )
    steps = found.sequences.shape[-1]
    targets = torch.randint(5, (4, steps + 2), generator=torch.Generator().manual_seed(0))
    mask = torch.rand(4, steps + 2, generator=torch.Generator().manual_seed(1)) < 0.7
    for rank in (0, 1):
        wrong = torch.ones(4, steps + 2)
        wrong[:, :steps] = (found.sequences[:, rank] != targets[:, :steps]).float()
        torch.testing.assert_close(soft_hamming_loss(found, targets, rank=rank).float(), wrong.mean())
        torch.testing.assert_close(
            soft_hamming_loss(found, targets, mask, rank=rank).float(), wrong[mask].mean()
        )
    with pytest.raises(
        ValueError, match=r"targets must be tokens of shape \(4, places\), got torch.int64 of \(3"
    ):
        soft_hamming_loss(found, targets[:3])
    with pytest.raises(ValueError, match="mask must be boolean of the shape of targets"):
        soft_hamming_loss(found, targets, mask.float())


def test_a_whole_shortlist_is_the_relaxation_over_all_continuations():
    log_probs = torch.randn(2, 3, 7, dtype=torch.float64).log_softmax(-1)
    before = running(torch.randn(2, 3, dtype=torch.float64))
    whole = soft_beam_step(log_probs, before, 3, temperature=0.5, shortlist=21)
    totals = (before.scores.unsqueeze(-1) + log_probs).flatten(1)
    rows = khot.topk_matrix(totals, 3, "softsort", temperature=0.5)
    torch.testing.assert_close(whole.scores, (rows @ totals.unsqueeze(-1)).squeeze(-1))
    hidden = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(whole.choice.blend(hidden), rows.view(2, 3, 3, 7).sum(-1) @ hidden)
    table = torch.randn(7, 5, dtype=torch.float64)
    torch.testing.assert_close(whole.choice.embed(table), rows.view(2, 3, 3, 7).sum(-2) @ table)
    short = soft_beam_step(log_probs, before, 3, temperature=0.5, shortlist=3)
    assert not torch.allclose(short.scores, whole.scores)
    assert torch.equal(short.tokens, whole.tokens)


def test_memory_of_a_step():
    """What is kept for the backward pass grows as k (V + d), not as k² V."""

    def kept(k, vocabulary, size):
        sizes = {}

        def pack(tensor):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 8
            return tensor

        model = Recurrent(vocabulary, size)
        state = running(torch.zeros(1, k, dtype=torch.float64, requires_grad=True))
        hidden = torch.randn(1, k, size, dtype=torch.float64, requires_grad=True)
        log_probs = torch.randn(1, k, vocabulary, dtype=torch.float64, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            new = soft_beam_step(log_probs, state, k, eos=EOS)
            new.choice.blend(hidden).sum() + new.choice.embed(model.embedding.detach()).sum()
        return sum(sizes.values())

    for k, vocabulary, size in ((4, 4000, 8), (16, 4000, 8), (4, 100, 2000), (16, 100, 2000)):
        assert kept(k, vocabulary, size) <= 6 * k * (vocabulary + size)


def test_fewer_continuations_than_places():
    """Places without a hypothesis have the score −inf, no gradient and no influence."""
    table = torch.tensor([[0.0, -math.inf, -math.inf], [0.3, 0.7, 0.0], [0.2, 0.2, 0.6]])
    logits = torch.where(table > 0, table.clamp_min(1e-9).log(), -math.inf).requires_grad_()
    found = soft_beam_search(
        lambda tokens, hidden: (logits[tokens], hidden),
        None,
        5,
        start=1,
        eos=0,
        max_length=2,
        temperature=0.1,
    )
    assert (found.scores > -math.inf).sum() == 3  # 1 1; 0; 1 0
    found.token_weights().square().sum().backward()
    assert logits.grad.isfinite().all()


def test_masked_tokens_are_not_chosen():
    log_probs = torch.randn(2, 1, 6).log_softmax(-1)
    mask = torch.tensor([True, False, True, True, False, True])
    state = soft_beam_step(log_probs, BeamState.start(torch.zeros(2, dtype=torch.long)), 4, mask=mask)
    assert sorted(state.tokens[0].tolist()) == [0, 2, 3, 5]
    assert not ((state.choice.tokens == 1) & (state.choice.weights.sum(1) > 0)).any()


def test_bfloat16():
    log_probs = torch.randn(2, 1, 6).log_softmax(-1)
    exact = soft_beam_step(log_probs, BeamState.start(torch.zeros(2, dtype=torch.long)), 2, temperature=0.5)
    low = soft_beam_step(
        log_probs.bfloat16(), BeamState.start(torch.zeros(2, dtype=torch.long)), 2, temperature=0.5
    )
    torch.testing.assert_close(low.scores.float(), exact.scores, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"shortlist": 1}, "shortlist must be at least k = 2, got 1"),
        ({"eos": 6}, "eos must be a token in 0 … 5, got 6"),
        ({"eos": 0, "pad": -1}, "pad must be at least 0, got -1"),
        ({"pad": 1}, "pad = 1 has no effect without eos"),
        ({"length_penalty": math.inf}, "length_penalty must be a finite number, got inf"),
        ({"temperature": 0.0}, "temperature must be positive and finite, got 0.0"),
        ({"method": "beam"}, "unknown method 'beam'"),
        ({"log_probs": torch.zeros(2, 6)}, r"log_probs must have the shape .* got \(2, 6\)"),
        ({"log_probs": torch.zeros(2, 3, 6)}, r"must begin with the shape of the state's scores, \(2, 1\)"),
    ],
)
def test_wrong_steps(change, message):
    arguments = {"log_probs": torch.zeros(2, 1, 6), "k": 2, **change}
    state = BeamState.start(torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match=message):
        soft_beam_step(arguments.pop("log_probs"), state, arguments.pop("k"), **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"start": torch.zeros(2)}, "start must be a token or integers"),
        ({"start": torch.tensor([True, False])}, "start must be a token or integers"),
        ({"start": -1}, "start must be at least 0, got -1"),
        ({"start": torch.tensor([0, -2])}, "start must not be negative, got -2"),
        ({"start": 7, "embedding": torch.zeros(5, 3)}, "start must be in the embedding of 5 tokens, got 7"),
        ({"embedding": torch.zeros(5)}, r"embedding must be a table \(tokens, d\), got the shape \(5,\)"),
        ({"eos": -1}, "soft_beam_search: eos must be at least 0, got -1"),
        ({"start": torch.zeros(3, dtype=torch.long)}, r"must have one batch size, got \[2, 3\]"),
    ],
)
def test_wrong_searches(change, message):
    model = Recurrent(5)
    arguments = {"start": START, "max_length": 3, **change}
    with pytest.raises(ValueError, match=message):
        soft_beam_search(model.token_step, model.start(2), 2, **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eos": 1, "pad": 2.0}, "pad must be an integer, got 2.0"),
        ({"eos": True}, "eos must be an integer, got True"),
        ({"eos": "</s>"}, "eos must be an integer, got '</s>'"),
        ({"eos": [1]}, r"eos must be an integer, got \[1\]"),
        ({"eos": 1, "pad": "0"}, "pad must be an integer, got '0'"),
        ({"shortlist": "all"}, "shortlist must be an integer, got 'all'"),
        ({"shortlist": [8]}, r"shortlist must be an integer, got \[8\]"),
        ({"k": 2.0}, r"k must be an integer, got 2\.0"),
    ],
)
def test_tokens_and_counts_are_integers(change, message):
    """A pad of 2.0 made sequences of floats, and a start of −1 was the last token."""
    log_probs, arguments = torch.zeros(2, 1, 6), {"k": 2, **change}
    state = BeamState.start(torch.zeros(2, dtype=torch.long))
    with pytest.raises(TypeError, match=f"soft_beam_step: {message}"):
        soft_beam_step(log_probs, state, **arguments)
    with pytest.raises(TypeError, match=f"soft_beam_search: {message}"):
        soft_beam_search(None, None, start=0, max_length=2, **arguments)


def test_what_is_no_tensor_is_named():
    state = BeamState.start(torch.zeros(2, dtype=torch.long))
    for call, message in (
        (lambda: soft_beam_step([[0.0]], state, 2), "log_probs must be a torch.Tensor, got list"),
        (lambda: soft_beam_step(torch.zeros(2, 1, 6), None, 2), "state must be a BeamState, got NoneType"),
        (lambda: soft_beam_step(torch.zeros(2, 1, 6).long(), state, 2), "log_probs must have a floating-po"),
        (
            lambda: soft_beam_search(None, None, 2, start=True, max_length=2),
            "start must be an integer, got Tr",
        ),
        (lambda: soft_beam_search(None, None, 2, start=0, max_length="2"), "max_length must be an integer"),
        (lambda: soft_hamming_loss(None, torch.zeros(1, 1)), "result must be a BeamResult, got NoneType"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_targets_of_the_hamming_loss_are_tokens_where_they_count():
    model = Recurrent(5)
    found = soft_beam_search(model.token_step, model.start(2), 2, start=START, max_length=3)
    for token in (-1, 9):
        targets = torch.tensor([[0, 1, 2], [0, token, 2]])
        with pytest.raises(ValueError, match=r"soft_hamming_loss: targets must be tokens in 0 … 4, got"):
            soft_hamming_loss(found, targets)
        counted = soft_hamming_loss(found, targets, targets != token)
        assert torch.equal(counted, soft_hamming_loss(found, targets % 5, targets != token))
        assert torch.equal(counted, soft_hamming_loss(found, targets.int(), targets != token))
    for wrong in ([[0, 1, 2]] * 2, None):
        with pytest.raises(TypeError, match="soft_hamming_loss: targets must be a torch"):
            soft_hamming_loss(found, wrong)
