"""Operators that are broken in one way each, and the checks of the contract that must notice."""

import pytest
import torch

from khot.relaxations import hard_topk, sigmoid_topk
from strategies import toy_operator
from strategies.toy_operator import toy_topk

BROKEN = {}


def noticed_by(*checks):
    def register(operator):
        BROKEN[operator.__name__] = (operator, checks)
        return operator

    return register


def toy_with(name, **settings):
    """toy_topk with other settings of its module, e.g. without one of its argument checks."""

    def operator(*args, **kwargs):
        with pytest.MonkeyPatch.context() as patch:
            for setting, value in settings.items():
                patch.setattr(toy_operator, setting, value)
            return toy_topk(*args, **kwargs)

    operator.__name__ = name
    return operator


def no_check(*args):
    return None


noticed_by("first_order", "shift_gradient", "row_derivatives")(toy_with("jacobian_is_its_diagonal", NEWTON=0))
noticed_by("second_order")(toy_with("right_first_derivative_only", NEWTON=1))
noticed_by("bad_temperature")(toy_with("accepts_any_temperature", check_temperature=no_check))
noticed_by("bad_scores")(toy_with("accepts_any_scores", check_scores=no_check))
noticed_by("bad_mask")(toy_with("accepts_any_mask", check_mask=no_check))


@noticed_by("bad_k")
def accepts_any_k(x, k, **kwargs):
    in_range = k if isinstance(k, torch.Tensor) else min(max(k, 0), x.shape[-1])
    return toy_with("", check_k=no_check)(x, in_range, **kwargs)


@noticed_by("bad_k", "bad_temperature", "bad_scores", "bad_mask")
def errors_say_nothing(*args, **kwargs):
    try:
        return toy_topk(*args, **kwargs)
    except (TypeError, ValueError, IndexError) as error:
        raise type(error)("invalid argument") from error


@noticed_by("range_and_sum", "hard_limit", "truth", "mask", "budget_edges", "capped")
def k_times_softmax(x, k, *, temperature=1.0, dim=-1, mask=None, hard=False):
    allowed = x if mask is None else x.masked_fill(~mask, -torch.inf)
    return torch.as_tensor(k, dtype=x.dtype)[..., None] * torch.softmax(allowed / temperature, dim)


@noticed_by("range_and_sum", "truth", "rows")
def sum_a_little_off(x, k, **kwargs):
    return toy_topk(x, k, **kwargs) * (1 - 1e-8)


@noticed_by("range_and_sum")
def whole_budgets_only(x, k, **kwargs):
    return toy_topk(x, k.floor() if isinstance(k, torch.Tensor) else int(k), **kwargs)


@noticed_by("temperature_range", "hard_rows", "hard_limit", "truth")
def without_temperature(x, k, *, temperature=1.0, **kwargs):
    return toy_topk(x, k, **kwargs)


@noticed_by("order", "hard_limit", "truth")
def of_magnitudes(x, k, **kwargs):
    return toy_topk(x.abs(), k, **kwargs)


@noticed_by("equivariance", "ties")
def prefers_the_first(x, k, **kwargs):
    return toy_topk(x - 1e-3 * torch.arange(x.shape[-1]), k, **kwargs)


@noticed_by("shift")
def sharper_far_from_zero(x, k, **kwargs):
    return toy_topk(x * (1 + 0.01 * x.abs()), k, **kwargs)


@noticed_by("mask", "masked_gradient", "bad_mask")
def without_mask(x, k, *, mask=None, **kwargs):
    return toy_topk(x, k, **kwargs)


@noticed_by("mask", "infinities", "row_values", "capped")
def nan_beside_infinities(x, k, **kwargs):
    return toy_topk(x, k, **kwargs) + 0 * x


@noticed_by("mask", "budget_edges")
def never_saturates(x, k, *, dim=-1, mask=None, **kwargs):
    allowed = x.shape[dim] if mask is None else mask.expand(x.shape).sum(dim)
    k = torch.minimum(torch.as_tensor(k, dtype=torch.float64), torch.as_tensor(allowed - 1e-3).clamp_min(0))
    return toy_topk(x, k, dim=dim, mask=mask, **kwargs)


@noticed_by("graph", "row_edges")
def constant_at_the_ends(x, k, **kwargs):
    y = toy_topk(x, k, **kwargs)
    budgets = torch.as_tensor(k)
    return y.detach() if ((budgets == 0) | (budgets == x.shape[-1])).all() else y


@noticed_by("largest")
def without_largest(x, k, *, largest=True, **kwargs):
    return toy_topk(x, k, **kwargs)


@noticed_by("half_rows")
def weights_rounded_to_half(x, k, **kwargs):
    y = toy_topk(x, k, **kwargs)
    return y.to(torch.bfloat16).to(y.dtype) if y.dtype == torch.float32 else y


@noticed_by("infinities")
def infinity_is_a_large_number(x, k, **kwargs):
    return toy_topk(x.clamp(max=10.0), k, **kwargs)


@noticed_by("dims")
def modifies_its_input(x, k, **kwargs):
    y = toy_topk(x, k, **kwargs)
    with torch.no_grad():
        x.add_(1)  # which changes none of the weights
    return y


@noticed_by("dims")
def last_dimension_only(x, k, *, dim=-1, **kwargs):
    return toy_topk(x, k, **kwargs)


@noticed_by("hard_flag")
def hard_is_above_a_half(x, k, *, hard=False, **kwargs):
    y = toy_topk(x, k, **kwargs)
    return (y > 0.5).to(y.dtype) + (y - y.detach()) if hard else y


@noticed_by("hard_flag")
def hard_has_twice_the_gradient(x, k, *, hard=False, **kwargs):
    y = toy_topk(x, k, **kwargs)
    return hard_topk(x, k) + 2 * (y - y.detach()) if hard else y


@noticed_by("scales")
def threshold_in_half_precision(x, k, **kwargs):
    y = toy_topk(x, k, **kwargs)
    if y.dtype not in (torch.float16, torch.bfloat16):
        return y
    shift = (torch.logit(toy_topk(x.double(), k, **kwargs)) - x.double()).amax(-1, keepdim=True)
    return torch.sigmoid(x + shift.to(x.dtype))


@noticed_by("scales")
def result_in_float64(x, k, **kwargs):
    return toy_topk(x.double(), k, **kwargs)


@noticed_by("scales")
def nan_for_large_scores(x, k, **kwargs):
    return toy_topk(x, k, **kwargs) + 0 * x.exp()


@noticed_by("largest_row")
def long_rows_lose_some(x, k, **kwargs):
    return toy_topk(x, k, **kwargs) * (1 if x.shape[-1] < 1000 else 1 - 1e-4)


@noticed_by("small_weights")
def small_weights_in_steps(x, k, **kwargs):
    """As if the threshold had been found to within 1e-6."""
    y = toy_topk(x, k, **kwargs)
    return y + torch.where(y.detach() < 1e-3, 1e-6 * (y != 0), 0.0) if x.shape[-1] > 1000 else y


@noticed_by("outlier_gradient")
def far_scores_have_a_slope(x, k, *, temperature=1.0, **kwargs):
    """As if exp were cut off where it overflows, and its slope there were not 0."""
    y = toy_topk(x, k, temperature=temperature, **kwargs)
    far = torch.where(x.isfinite() & (x.detach().abs() > 1e5), x / temperature, 0.0)
    return y + 1e-7 * (far - far.detach())


@noticed_by("budget_gradient")
def no_budget_gradient_if_nearly_hard(x, k, **kwargs):
    y = toy_topk(x, k, **kwargs)
    soft = ((y > 1e-8) & (y < 1 - 1e-8)).any(-1, keepdim=True)
    return torch.where(soft, y, y.detach())


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, x):
        ctx.save_for_backward(x)
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g, torch.where(x == torch.inf, g, 0.0)


@noticed_by("infinities")
def crowds_at_infinity_have_a_gradient(x, k, **kwargs):
    return _Moved.apply(toy_topk(x, k, **kwargs), x)


class _OfRounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        w = y * (1 - y)
        return w * (g - (w * g).sum(-1, keepdim=True) / w.sum(-1, keepdim=True).clamp_min(1e-6)), None


@noticed_by("half_gradient")
def half_gradient_of_rounded_weights(x, k, **kwargs):
    y = toy_topk(x, k, **kwargs)
    return _OfRounded.apply(x, y.detach()) if x.dtype in (torch.float16, torch.bfloat16) else y


@noticed_by("without_grad")
def hard_without_grad(x, k, **kwargs):
    return toy_topk(x, k, **kwargs) if torch.is_grad_enabled() else hard_topk(x, k)


@noticed_by("autocast")
def through_a_matrix_product(x, k, **kwargs):
    return toy_topk(x, k, **kwargs) @ torch.eye(x.shape[-1], dtype=x.dtype)


@noticed_by("torch_func")
def reads_values(x, k, **kwargs):
    x.detach().sum().item()
    return toy_topk(x, k, **kwargs)


# The toy reads values, which no graph can; these are of khot's own.


@noticed_by("compile", "compiled_jvp", "inductor", "export")
def less_when_traced(x, k, **kwargs):
    y = sigmoid_topk(x, k, **kwargs)
    return y * (1 - 1e-3) if torch.compiler.is_compiling() else y


@noticed_by("compile")
def no_temperature_gradient_when_traced(x, k, *, temperature=1.0, **kwargs):
    constant = torch.compiler.is_compiling() and isinstance(temperature, torch.Tensor)
    held = temperature.detach() + 0 * temperature if constant else temperature
    return sigmoid_topk(x, k, temperature=held, **kwargs)


@noticed_by("compile", "compiled_jvp", "export")
def two_graphs(x, k, **kwargs):
    y = sigmoid_topk(x, k, **kwargs)
    return y if y.sum() > 0 else y + 1


@torch.library.custom_op("khot_tests::copied", mutates_args=())
def _copied(y: torch.Tensor) -> torch.Tensor:
    return y.clone()


@_copied.register_fake
def _copied_shape(y):
    return torch.empty_like(y)


@noticed_by("export")
def exports_a_kernel(x, k, **kwargs):
    return _copied(sigmoid_topk(x, k, **kwargs))
