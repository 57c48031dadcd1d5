"""SparseAutoencoder against the dense form, value and gradient; its options one by one, and what it
refuses."""

import copy
import io

import pytest
import torch

from khot.apps.sae import SparseAutoencoder
from strategies import dense_autoencoder
from strategies.quick_run import costly

KINDS = {
    "topk": {},
    "batch_topk": {},
    "sigmoid_topk": {"candidates": 20},
    "jumprelu": {"threshold": 0.4},
}
SOFT = 0.5  # the first temperature, at which a new autoencoder of sigmoid_topk trains


def made(activation="topk", d_in=12, latents=40, k=5, seed=0, **options):
    torch.manual_seed(seed)
    options = {**KINDS[activation], "dtype": torch.float64, "tied": False, **options}
    autoencoder = SparseAutoencoder(d_in, latents, k, activation, **options)
    with torch.no_grad():
        for name, parameter in autoencoder.named_parameters():
            if name != "W_enc":
                parameter.normal_(std=0.4)
    return autoencoder


def inputs(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("activation", "scaled"),
    [(kind, scaled) for kind in KINDS for scaled in (False, True) if kind != "jumprelu" or not scaled],
)
def test_values_and_gradients_are_those_of_the_dense_form(activation, skip, scaled):
    autoencoder = made(activation, skip=skip, scale_by_decoder_norm=scaled)
    x, upstream = inputs(9, 12).requires_grad_(), inputs(9, 12, seed=2)
    leaves = [x, *autoencoder.parameters()]
    how = {"temperature": SOFT} if activation == "sigmoid_topk" else {}
    wanted = dense_autoencoder.reconstruct(autoencoder, x, **how)
    found = autoencoder(x).sae_out
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(
        torch.autograd.grad(found, leaves, upstream),
        torch.autograd.grad(wanted, leaves, upstream),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("activation", KINDS)
def test_encode_gives_the_latents_of_the_dense_form(activation, training):
    autoencoder = made(activation, scale_by_decoder_norm=activation != "jumprelu").train(training)
    if activation == "batch_topk":
        autoencoder.threshold.fill_(0.3)
    x = inputs(3, 4, 12)
    soft = {"temperature": SOFT} if activation == "sigmoid_topk" and training else {}
    wanted = dense_autoencoder.latents_of(autoencoder, x.view(12, 12), **soft)[1].view(3, 4, 40)
    torch.testing.assert_close(autoencoder.encode(x, dense=True), wanted)
    acts, indices = autoencoder.encode(x)
    assert acts.shape == indices.shape
    torch.testing.assert_close(torch.zeros_like(wanted).scatter_add(-1, indices, acts), wanted)
    for given in ((acts, indices), (wanted,)):
        torch.testing.assert_close(autoencoder.decode(*given), autoencoder(x).sae_out)


def test_the_result_has_the_six_fields_of_sparsify_first_and_l0():
    result = made()(inputs(7, 12))
    assert result._fields[:6] == (
        "sae_out",
        "latent_acts",
        "latent_indices",
        "fvu",
        "auxk_loss",
        "multi_topk_fvu",
    )
    x = inputs(7, 12)
    assert result.fvu.item() == pytest.approx(
        ((result.sae_out - x).square().sum() / (x - x.mean(0)).square().sum()).item()
    )
    assert result.l0.item() == pytest.approx((result.latent_acts > 0).sum(-1).double().mean().item())
    assert result.loss().item() == pytest.approx(result.fvu.item())


def test_auxk_is_the_residual_explained_by_dead_latents_and_reaches_their_encoder():
    autoencoder = made(k_aux=3)
    x = inputs(9, 12)
    dead = torch.zeros(40, dtype=torch.bool)
    dead[::4] = True
    result = autoencoder(x, dead_mask=dead)
    residual = (x - result.sae_out).detach()
    pre = dense_autoencoder.scores_of(autoencoder, x)[0][:, dead]
    mask = dense_autoencoder.hard_mask(pre, 3)
    guess = (pre.relu() * mask) @ autoencoder.W_dec[dead]
    variance = (x - x.mean(0)).square().sum()
    wanted = (guess - residual).square().sum() / variance  # 10 dead of 3: the scale is 1
    assert result.auxk_loss.item() == pytest.approx(wanted.item())
    (encoder,) = torch.autograd.grad(result.auxk_loss, autoencoder.W_enc, retain_graph=True)
    assert not encoder[~dead].any()
    assert encoder[dead].abs().sum(-1).gt(0).sum() >= 8
    # Where all selected pre-activations are positive, the gradient is that of the dense form.
    with torch.no_grad():
        autoencoder.b_enc += 10 * dead
    result = autoencoder(x, dead_mask=dead)
    pre = dense_autoencoder.scores_of(autoencoder, x)[0][:, dead]
    guess = (pre.relu() * dense_autoencoder.hard_mask(pre, 3)) @ autoencoder.W_dec[dead]
    wanted = (guess - (x - result.sae_out).detach()).square().sum() / variance
    for ours, theirs in zip(
        torch.autograd.grad(result.auxk_loss, [autoencoder.W_enc, autoencoder.W_dec]),
        torch.autograd.grad(wanted, [autoencoder.W_enc, autoencoder.W_dec]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_auxk_moves_a_latent_that_is_negative_on_every_token_and_scales_with_their_number():
    autoencoder = made(k_aux=4)
    with torch.no_grad():
        autoencoder.b_enc[:2] = -20
    dead = torch.arange(40) < 2
    x = inputs(9, 12)
    loss = autoencoder(x, dead_mask=dead).auxk_loss
    (encoder,) = torch.autograd.grad(loss, autoencoder.W_enc)
    assert encoder[:2].abs().amin() > 0
    residual = (x - autoencoder(x).sae_out).square().sum() / (x - x.mean(0)).square().sum()
    assert loss.item() == pytest.approx(0.5 * residual.item())  # nothing is explained yet; 2 of 4
    assert autoencoder(x, dead_mask=torch.zeros(40, dtype=torch.bool)).auxk_loss.item() == 0


def test_multi_topk_is_the_error_with_four_times_k():
    autoencoder, x = made(multi_topk=True), inputs(9, 12)
    wanted = dense_autoencoder.reconstruct(autoencoder, x, k=20)
    result = autoencoder(x)
    variance = (x - x.mean(0)).square().sum()
    assert result.multi_topk_fvu.item() == pytest.approx(((wanted - x).square().sum() / variance).item())
    assert result.latent_acts.shape == (9, 5)


def test_prefixes_reconstruct_alone():
    autoencoder, x = made("batch_topk", prefixes=(10, 25)), inputs(9, 12)
    latents = dense_autoencoder.latents_of(autoencoder, x)[0]
    variance = (x - x.mean(0)).square().sum()
    errors = []
    for end in (10, 25):
        out = latents[:, :end] @ autoencoder.W_dec[:end] + autoencoder.b_dec
        errors.append(((out - x).square().sum() / variance).item())
    assert autoencoder.options.prefixes == (10, 25, 40)
    assert autoencoder(x).prefix_fvu.item() == pytest.approx(sum(errors) / 2)


def test_a_transcoder_predicts_another_vector():
    autoencoder = made(transcoder=True, d_out=7, skip=True)
    x, y = inputs(9, 12), inputs(9, 7, seed=3)
    result = autoencoder(x, y)
    torch.testing.assert_close(result.sae_out, dense_autoencoder.reconstruct(autoencoder, x))
    assert result.fvu.item() == pytest.approx(
        ((result.sae_out - y).square().sum() / (y - y.mean(0)).square().sum()).item()
    )
    with pytest.raises(ValueError, match="needs y"):
        autoencoder(x)
    with pytest.raises(ValueError, match=r"y must have the shape \(9, 7\)"):
        autoencoder(x, x)


def test_annealing_brings_k_and_the_temperature_down_to_the_hard_selection():
    x = inputs(9, 12)
    autoencoder = made("topk", k_start=4.0)
    assert [autoencoder(x).latent_acts.shape[1] for p in (0, 0.5, 1) if not autoencoder.anneal(p)] == [
        20,
        10,
        5,
    ]
    soft = made("sigmoid_topk", temperature=(1.0, 0.01), k_start=2.0)
    soft.anneal(0.5)
    wanted = dense_autoencoder.reconstruct(soft, x, k=5 * 2**0.5, temperature=0.1)
    torch.testing.assert_close(soft(x).sae_out, wanted, rtol=1e-8, atol=1e-8)
    soft.anneal(1.0)
    torch.testing.assert_close(soft(x).sae_out, dense_autoencoder.reconstruct(soft, x))
    assert soft(x).latent_acts.shape == (9, 5)
    with pytest.raises(ValueError, match=r"progress must be in \[0, 1\], got 2"):
        soft.anneal(2)


def test_the_threshold_of_batch_topk_follows_training_and_can_be_fitted():
    autoencoder, x = made("batch_topk"), inputs(200, 12)
    with pytest.raises(RuntimeError, match="is not known: train, or call fit_threshold"):
        autoencoder.eval()(x)
    autoencoder.train()(x)
    latents = dense_autoencoder.latents_of(autoencoder, x)[1]
    smallest = latents[latents > 0].min().item()
    assert autoencoder.threshold.item() == pytest.approx(smallest)
    autoencoder(2 * x)
    second = dense_autoencoder.latents_of(autoencoder, 2 * x)[1]
    assert autoencoder.threshold.item() == pytest.approx(
        0.99 * smallest + 0.01 * second[second > 0].min().item()
    )
    for l0 in (5, 2.5):
        autoencoder.fit_threshold(x, l0=None if l0 == 5 else l0)
        assert autoencoder.eval()(x).l0.item() == pytest.approx(l0)


@pytest.mark.parametrize("activation", KINDS)
def test_as_jumprelu_has_the_wanted_number_of_active_latents(activation):
    autoencoder = made(activation, scale_by_decoder_norm=activation != "jumprelu").eval()
    x = inputs(300, 12)
    jump = autoencoder.as_jumprelu(x)
    assert jump.options.activation == "jumprelu"
    assert jump(x).l0.item() == pytest.approx(5)
    if activation == "batch_topk":
        autoencoder.fit_threshold(x)
        torch.testing.assert_close(autoencoder.as_jumprelu()(x).sae_out, autoencoder(x).sae_out)
    elif activation != "jumprelu":
        with pytest.raises(ValueError, match="as_jumprelu needs x"):
            autoencoder.as_jumprelu()


@pytest.mark.parametrize("options", [{}, {"subtract_b_dec": False}, {"skip": True}])
@pytest.mark.parametrize("activation", KINDS)
def test_folding_standardisation_changes_nothing_but_units(activation, options):
    autoencoder = made(activation, **options).eval()
    x, mean, scale = 3 + 2 * inputs(50, 12), inputs(12, seed=5), 0.4
    if activation == "batch_topk":
        autoencoder.fit_threshold((x - mean) * scale)
    wanted = autoencoder((x - mean) * scale)
    autoencoder.fold_standardisation_(mean, scale)
    found = autoencoder(x)
    torch.testing.assert_close(found.sae_out, wanted.sae_out / scale + mean)
    torch.testing.assert_close(found.latent_acts, wanted.latent_acts / scale)


@pytest.mark.parametrize("activation", KINDS)
def test_padding_is_not_seen(activation):
    autoencoder = made(activation)
    x = inputs(4, 6, 12)
    mask = torch.arange(6) < torch.tensor([[6], [3], [0], [5]])
    x_bad = torch.where(mask[..., None], x, 1e3)
    result = autoencoder(x_bad, mask=mask)
    alone = copy.deepcopy(autoencoder)(x[mask])
    torch.testing.assert_close(result.sae_out[mask], alone.sae_out)
    assert result.fvu.item() == pytest.approx(alone.fvu.item())
    assert result.l0.item() == pytest.approx(alone.l0.item())
    assert not result.latent_acts[~mask].any()


def test_decoder_norms_stay_at_one():
    autoencoder = SparseAutoencoder(12, 40, 5)
    torch.testing.assert_close(autoencoder.W_dec.norm(dim=-1), torch.ones(40))
    torch.testing.assert_close(autoencoder.W_enc, autoencoder.W_dec)
    assert not torch.equal(SparseAutoencoder(12, 40, 5, tied=False).W_enc, autoencoder.W_dec)
    assert SparseAutoencoder(12, 40, 5, normalize_decoder=False).W_dec.norm(dim=-1).std() > 0.05
    autoencoder(inputs(20, 12)).loss().backward()
    autoencoder.project_decoder_gradient_()
    assert (autoencoder.W_dec.grad * autoencoder.W_dec).sum(-1).abs().max() < 1e-6
    with torch.no_grad():
        autoencoder.W_dec.mul_(3)
    autoencoder.normalize_decoder_()
    torch.testing.assert_close(autoencoder.W_dec.norm(dim=-1), torch.ones(40))


def test_state_is_saved_with_annealing_and_threshold():
    autoencoder = made("batch_topk", k_start=2.0)
    autoencoder.anneal(0.25)
    autoencoder(inputs(9, 12))
    file = io.BytesIO()
    torch.save(autoencoder.state_dict(), file)
    file.seek(0)
    other = made("batch_topk", k_start=2.0, seed=9)
    other.load_state_dict(torch.load(file))
    assert other.progress == 0.25
    torch.testing.assert_close(other(inputs(9, 12)).sae_out, autoencoder(inputs(9, 12)).sae_out)


def test_a_state_of_another_k_or_activation_is_refused():
    state = made("topk", k=5).state_dict()
    with pytest.raises(RuntimeError, match="k was 5 when the state was saved, and is 4 here"):
        made("topk", k=4).load_state_dict(state)
    with pytest.raises(RuntimeError, match="activation was topk when the state was saved"):
        made("sigmoid_topk", k=5).load_state_dict(state)


@pytest.mark.parametrize("scale", [1e18, 1e30])
@pytest.mark.parametrize("activation", ["topk", "batch_topk"])
def test_large_inputs_have_the_same_fraction_unexplained(activation, scale):
    # Biases are 0 at first: reconstructions, and with them the fraction, do not depend on the scale.
    autoencoder, dead = SparseAutoencoder(12, 40, 5, activation, prefixes=(10,)), torch.arange(40) < 3
    x = torch.randn(50, 12, generator=torch.Generator().manual_seed(3))
    small, large = (autoencoder(x * s, dead_mask=dead) for s in (1.0, scale))
    for field in ("fvu", "auxk_loss", "prefix_fvu"):
        torch.testing.assert_close(getattr(large, field), getattr(small, field), rtol=1e-4, atol=1e-5)
    large.loss().backward()
    assert all(p.grad.isfinite().all() for p in autoencoder.parameters() if p.grad is not None)


@pytest.mark.parametrize("activation", KINDS)
def test_bfloat16_and_k_at_its_ends(activation):
    options = {**KINDS[activation], "dtype": torch.bfloat16}
    result = SparseAutoencoder(12, 40, 5, activation, **options)(inputs(9, 12, dtype=torch.float32))
    result.loss().backward()
    assert result.sae_out.dtype == torch.bfloat16
    assert result.sae_out.isfinite().all()
    for k in (1, 40):
        whole = made(activation, k=k, candidates=None)
        assert whole(inputs(9, 12)).sae_out.isfinite().all()


@pytest.mark.parametrize("activation", KINDS)
def test_inputs_that_say_nothing_give_numbers(activation):
    autoencoder = made(activation)
    for x in (torch.zeros(4, 12), torch.ones(1, 12), torch.zeros(0, 12)):
        result = autoencoder(x)
        assert all(field.isfinite().all() for field in result)
        result.loss().backward()


@pytest.mark.parametrize(
    ("activation", "backend"),
    [
        ("topk", "aot_eager"),
        ("sigmoid_topk", "aot_eager"),
        costly("topk", "inductor"),
        costly("sigmoid_topk", "inductor"),
    ],
)
def test_it_compiles(activation, backend):
    autoencoder = SparseAutoencoder(12, 40, 5, activation)
    x = inputs(9, 12, dtype=torch.float32)
    compiled = torch.compile(autoencoder, backend=backend)
    found, wanted = compiled(x), autoencoder(x)
    torch.testing.assert_close(found.sae_out, wanted.sae_out, rtol=1e-4, atol=1e-5)
    found.loss().backward()
    gradient = autoencoder.W_enc.grad.clone()
    autoencoder.zero_grad()
    wanted.loss().backward()
    torch.testing.assert_close(gradient, autoencoder.W_enc.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be an integer in 1 … 40, got 0"),
        ({"k": 41}, "k must be an integer in 1 … 40, got 41"),
        ({"d_in": 0}, "d_in must be an integer ≥ 1, got 0"),
        (
            {"activation": "relu"},
            "activation must be one of topk, batch_topk, sigmoid_topk, jumprelu, got 'relu'",
        ),
        ({"d_out": 5}, "d_out must be d_in = 12 unless transcoder=True, got 5"),
        ({"transcoder": True, "subtract_b_dec": True}, "subtract_b_dec must be False for a transcoder"),
        ({"prefixes": (10, 5)}, "prefixes must be rising integers"),
        ({"k_aux": 0}, "k_aux must be an integer ≥ 1, got 0"),
        ({"k_start": 0.5}, "k_start must be a number ≥ 1, got 0.5"),
        ({"activation": "sigmoid_topk", "temperature": (0.0, 1.0)}, "temperature must be two numbers > 0"),
        ({"activation": "sigmoid_topk", "candidates": 3}, "candidates must be an integer in 5"),
        ({"activation": "batch_topk", "multi_topk": True}, "multi_topk needs activation='topk'"),
        ({"activation": "jumprelu"}, "jumprelu needs a threshold"),
        ({"activation": "jumprelu", "threshold": -1.0}, "threshold must be finite and ≥ 0"),
        ({"threshold": 1.0}, "topk has no threshold, got 1.0"),
        ({"d_in": "6"}, "d_in must be an integer ≥ 1, got '6'"),
        ({"k": float("nan")}, "k must be an integer in 1 … 40, got nan"),
        ({"k": True}, "k must be an integer in 1 … 40, got True"),
        ({"prefixes": 3}, "prefixes must be rising integers in 1 … 40, the last 40, got 3"),
        ({"k_start": "2"}, "k_start must be a number ≥ 1, got '2'"),
        ({"temperature": 1.0}, "temperature must be two numbers > 0"),
        ({"k_aux": 2.0}, "k_aux must be an integer ≥ 1, got 2.0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        SparseAutoencoder(**{"d_in": 12, "num_latents": 40, "k": 5, **options})
    assert message in str(error.value)


def test_wrong_inputs_are_refused_by_name():
    autoencoder = made()
    for call, message in (
        (lambda: autoencoder(inputs(3, 11)), "x must be floating-point with the last dimension 12"),
        (lambda: autoencoder(torch.ones(3, 12, dtype=torch.int64)), "x must be floating-point"),
        (lambda: autoencoder(inputs(3, 12), mask=torch.ones(3)), "mask must be boolean of shape (3,)"),
        (
            lambda: autoencoder(inputs(3, 12), dead_mask=torch.ones(3) > 0),
            "dead_mask must be boolean of shape (40,)",
        ),
        (lambda: autoencoder.decode(inputs(3, 12)), "acts without indices must have the last dimension 40"),
        (lambda: autoencoder.fit_threshold(inputs(3, 12)), "fit_threshold is for batch_topk, this is topk"),
        (lambda: autoencoder.as_jumprelu(inputs(3, 12), 41), "l0 in (0, 40]"),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert message in str(error.value)


def test_inputs_that_are_no_tensors_are_refused_by_name():
    autoencoder = made()
    x, acts, indices = inputs(3, 12), inputs(3, 5), torch.zeros(3, 5, dtype=torch.int64)
    for call, message in (
        (lambda: autoencoder([[0.0] * 12]), "SparseAutoencoder: x must be a torch.Tensor, got list"),
        (lambda: autoencoder(None), "SparseAutoencoder: x must be a torch.Tensor, got NoneType"),
        (lambda: autoencoder.encode([0.0]), "SparseAutoencoder: x must be a torch.Tensor, got list"),
        (lambda: autoencoder(x, [0.0]), "SparseAutoencoder: y must be a torch.Tensor, got list"),
        (lambda: autoencoder(x, mask=[True]), "SparseAutoencoder: mask must be a torch.Tensor, got list"),
        (
            lambda: autoencoder(x, dead_mask=[True]),
            "SparseAutoencoder: dead_mask must be a torch.Tensor, got list",
        ),
        (lambda: autoencoder.decode([0.0], indices), "decode: acts must be a torch.Tensor, got list"),
        (lambda: autoencoder.decode(acts, [0]), "decode: indices must be a torch.Tensor, got list"),
        (lambda: autoencoder.encode(x, dense="no"), "encode: dense must be True or False, got 'no'"),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert message in str(error.value)


@pytest.mark.parametrize("activation", ["topk", "batch_topk", "sigmoid_topk"])
def test_tokens_without_variance_have_finite_gradients_in_half_precision(activation):
    """The smallest variance that the loss divides by gives derivatives beyond 65504."""
    for scale in (1e-3, 1.0, 1000.0):
        for count, repeats in ((1, 1), (1, 4), (2, 1), (8, 1)):
            torch.manual_seed(0)
            autoencoder = SparseAutoencoder(4, 8, 2, activation).half()
            x = (scale * inputs(count, 4)).half().repeat(repeats, 1).requires_grad_()
            result = autoencoder(x)
            result.fvu.backward()
            assert result.fvu.isfinite()
            for tensor in (x, *autoencoder.parameters()):
                assert tensor.grad.isfinite().all()
            if count == 8 and scale == 1:  # as in single precision
                twin = copy.deepcopy(autoencoder).float()
                wide = torch.autograd.grad(twin(x.detach().float()).fvu, twin.W_dec)[0]
                torch.testing.assert_close(autoencoder.W_dec.grad.float(), wide, rtol=0.05, atol=5e-3)


@pytest.mark.skipif(torch.__version__ < "2.13", reason="older compilers break where sizes depend on values")
@pytest.mark.parametrize("grad", [True, False])
def test_a_fitted_threshold_compiles_without_a_break(grad):
    """Also where no token has an active latent; and an unknown threshold is an error there too."""
    autoencoder, x = made("batch_topk", dtype=torch.float32).eval(), inputs(9, 12, dtype=torch.float32)
    autoencoder.fit_threshold(x)
    with torch.set_grad_enabled(grad):
        compiled = torch.compile(autoencoder, backend="aot_eager", fullgraph=True)
        for threshold in (autoencoder.threshold.item(), 1e9):
            autoencoder.threshold.fill_(threshold)
            found, wanted = compiled(x), autoencoder(x)
            torch.testing.assert_close(found.sae_out, wanted.sae_out)
            assert torch.equal(found.latent_indices, wanted.latent_indices)
        autoencoder.threshold.fill_(-1.0)
        with pytest.raises(RuntimeError, match="the threshold of batch_topk is not known"):
            compiled(x)


def test_inputs_in_any_memory_order_and_no_second_derivative():
    autoencoder, x = made(), inputs(12, 9).T.requires_grad_()
    leaves = [x, *autoencoder.parameters()]
    found = torch.autograd.grad(autoencoder(x).sae_out.sum(), leaves)
    wanted = torch.autograd.grad(dense_autoencoder.reconstruct(autoencoder, x).sum(), leaves)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
    (first,) = torch.autograd.grad(autoencoder(x).fvu, x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()
