// Sigmoid top-k of bfloat16 and float16, and its Jacobian product.
#include "kernels.h"
#include "problem.h"

namespace fuzz {
namespace {

struct Half {
    khot::HalfKind kind;
    int fraction;  // bits
    double smallest_normal;

    double value(uint16_t bits) const {
        const int width = 15 - fraction, exponent = (bits & 0x7fff) >> fraction, part = bits & ((1 << fraction) - 1);
        const int bias = (1 << (width - 1)) - 1;
        double size;
        if (exponent == (1 << width) - 1) {
            size = part == 0 ? HUGE_VAL : std::nan("");
        } else if (exponent == 0) {
            size = std::ldexp(double(part), 1 - bias - fraction);
        } else {
            size = std::ldexp(double(part + (1 << fraction)), exponent - bias - fraction);
        }
        return (bits & 0x8000) != 0 ? -size : size;
    }
};

}  // namespace

void halves(Input& in) {
    static const Half kinds[] = {{khot::HalfKind::bfloat16, 7, 0x1p-126}, {khot::HalfKind::float16, 10, 0x1p-14}};
    const Half half = in.one_of(kinds);
    const Shape of = shape(in, 1, INT64_MAX);
    doing(half.fraction == 7 ? "sigmoid_topk_half, bfloat16" : "sigmoid_topk_half, float16", 2, of);
    const int64_t rows = of.rows, n = of.n;
    Exact<uint16_t> x(of.size(), in.below(3)), grad(of.size(), in.below(3));
    const int64_t style = in.below(4);
    const uint16_t around = uint16_t(((1 << (14 - half.fraction)) - 1) << half.fraction);  // 1.0
    for (int64_t i = 0; i < of.size(); ++i) {
        const uint16_t bits = uint16_t(in.random());
        const uint16_t near = uint16_t(around - (3 << half.fraction) + bits % (6 << half.fraction));  // from 1/8 to 8
        x[i] = style == 0 ? bits : style == 1 ? uint16_t(in.byte() << 8) : uint16_t(near | (bits & 0x8000));
        if (style != 0 && !std::isfinite(half.value(x[i]))) x[i] = around;
        grad[i] = uint16_t((in.random() & 0x8000) | (in.flag() ? around : 0));
    }
    const double k = budget(in, n, true), epsilon = std::ldexp(1.0, -half.fraction);
    const float tau = temperature<float>(in);
    for (const Way& way : ways()) {
        use(way);
        Exact<uint16_t> y(of.size(), 1), out(of.size(), 1);
        Exact<float> threshold(2 * rows);
        const bool enough = khot::sigmoid_topk_half(half.kind, x.get(), k, tau, y.get(), threshold.get(), rows, n, way.threads) &&
                            khot::sigmoid_jacobian_half(half.kind, x.get(), threshold.get(), grad.get(), tau, out.get(), rows,
                                                        n, way.threads);
        require(enough, "enough memory");
        for (int64_t row = 0; row < rows; ++row) {
            double sum = 0, allowed = 0;
            bool nan = false;
            for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                const double score = half.value(x[i]);
                nan |= score != score;
                allowed += score != -HUGE_VAL;
            }
            for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                const double weight = half.value(y[i]), product = half.value(out[i]);
                if (nan) {
                    require(weight != weight, "NaN in the whole row of a NaN", weight);
                    continue;
                }
                require(weight >= 0 && weight <= 1, "a weight in [0, 1]", weight, half.value(x[i]));
                require(product == product, "no NaN in a product", product, half.value(x[i]));
                sum += weight;
            }
            const double wanted = allowed < k ? allowed : k;
            const double tolerance = epsilon * wanted + double(n) * half.smallest_normal * epsilon;
            if (!nan) require(std::fabs(sum - wanted) <= tolerance, "Σ = k", sum, wanted);
        }
    }
}

}  // namespace fuzz
