// Operators on short rows: weights that sum to k, rows that sum to 1, finite gradients.
#include "kernels.h"
#include "problem.h"

namespace fuzz {
namespace {

using khot::SmallKind;

// Any layers are a network: its comparators only exchange weight.
std::vector<khot::NetworkLayer> network(Input& in, int64_t n) {
    std::vector<khot::NetworkLayer> layers;
    for (int64_t depth = in.below(6); depth > 0; --depth) {
        khot::NetworkLayer layer{};
        layer.first = in.below(2);
        layer.distance = int64_t(1) << in.below(6);
        layer.mirrored = in.below(2);
        const int64_t most = (n - layer.first) / (2 * layer.distance);
        layer.groups = most < 1 ? 0 : 1 + in.below(most);
        if (layer.groups > 0) layers.push_back(layer);
    }
    return layers;
}

template <typename real>
void any_small(Input& in) {
    static const double temperatures[] = {1, 1, 0.1, 0.01, 1e-3, 10, 1e3, 1e-6, 1e-9, 1e9};
    const SmallKind kind = SmallKind(in.below(8));
    const bool is_network = kind == SmallKind::network, halving = kind == SmallKind::successive_halving;
    Shape of = shape(in, 2, 256);
    const int64_t n = of.n, k = 1 + in.below(n - 1);
    const int64_t fitting = (int64_t(1) << 12) / (n * k) + 1;
    of.rows = of.rows < fitting ? of.rows : fitting;
    const int64_t rows = of.rows;
    doing("small_rows", sizeof(real), of);
    const bool product = in.flag(), matrix = !product && !is_network && !halving && in.flag();
    const int64_t tau_stride = in.below(2), window_stride = in.below(2);
    Exact<double> tau(tau_stride == 0 ? 1 : rows), window(window_stride == 0 ? 1 : rows);
    for (int64_t i = 0; i < tau.size(); ++i) tau[i] = in.one_of(temperatures);
    for (int64_t i = 0; i < window.size(); ++i) window[i] = in.one_of(temperatures);
    const std::vector<khot::NetworkLayer> given = is_network ? network(in, n) : std::vector<khot::NetworkLayer>();
    Exact<khot::NetworkLayer> layers(int64_t(given.size()));
    for (int64_t i = 0; i < layers.size(); ++i) layers[i] = given[size_t(i)];
    Exact<real> x(of.size(), in.below(3));
    fill(in, x.get(), x.size(), in.below(8) == 0 ? Values::any : Values::finite);
    const Exact<real> grad = gradients<real>(in, of.size(), 0);
    const bool cauchy = in.flag();
    const int64_t size = matrix ? rows * k * n : of.size(), width = matrix ? 1 : k;
    for (const Way& way : ways()) {
        use(way);
        Exact<real> out(size);
        const int code = khot::small_rows(kind, x.get(), product ? grad.get() : nullptr, tau.get(), tau_stride, window.get(),
                                          window_stride, layers.get(), layers.size(), cauchy, matrix, out.get(), rows, n, k,
                                          way.threads);
        require(code >= 0, "enough memory");
        if (code == 0) continue;
        for (int64_t row = 0; row < size / n; ++row) {
            double sum = 0;
            for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                const double value = double(out[i]);
                require(std::isfinite(value), "a finite result", value, double(int(kind)));
                if (!product) require(value >= 0, "no negative weight", value, double(int(kind)));
                sum += value;
            }
            const double tolerance = (sizeof(real) == 4 ? 1e-5 : 1e-9) * double(width);
            if (!product) require(std::fabs(sum - double(width)) <= tolerance, "Σ = k", sum, double(int(kind)));
        }
    }
}

}  // namespace

void small(Input& in) {
    if (in.flag()) {
        any_small<float>(in);
    } else {
        any_small<double>(in);
    }
}

}  // namespace fuzz
