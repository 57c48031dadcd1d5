// Routers: the k largest logits and their softmax, and its gradient.
#include "kernels.h"
#include "problem.h"
#include "sorted.h"

namespace fuzz {
namespace {

template <typename real>
void any_router(Input& in) {
    const Shape of = shape(in, 1, 5000);
    doing("router_topk and router_gradient", sizeof(real), of);
    const int64_t rows = of.rows, n = of.n, k = 1 + in.below(n < khot::ROUTER_MOST ? n : khot::ROUTER_MOST);
    const bool renormalise = in.flag();
    Exact<real> x(of.size(), in.below(3));
    fill(in, x.get(), x.size(), in.flag() ? Values::any : Values::finite);
    const Exact<real> grad = gradients<real>(in, rows * k, 0);
    std::vector<Exact<real>> found;
    for (const Way& way : ways()) {
        use(way);
        Exact<int64_t> indices(rows * k);
        Exact<real> weights(rows * k), sums(2 * rows), out(of.size());
        require(khot::router_topk(x.get(), k, renormalise, indices.get(), weights.get(), sums.get(), rows, n, way.threads),
                "enough memory");
        khot::router_gradient(x.get(), indices.get(), weights.get(), sums.get(), grad.get(), renormalise, out.get(), rows, n, k,
                              way.threads);
        for (int64_t row = 0; row < rows; ++row) {
            const real* mine = x.get() + row * n;
            const std::vector<int64_t> right = sorted(n, true, [&](int64_t i) { return double(mine[i]); });
            bool finite = true;
            for (int64_t i = 0; i < n; ++i) finite &= std::isfinite(mine[i]) || mine[i] == -HUGE_VAL;
            finite &= mine[right[0]] != -HUGE_VAL;
            double sum = 0;
            for (int64_t j = 0; j < k; ++j) {
                const double weight = double(weights[row * k + j]);
                require(indices[row * k + j] == right[size_t(j)], "the indices of a stable sort", double(indices[row * k + j]));
                if (finite) require(weight >= 0 && weight <= 1, "a weight in [0, 1]", weight, double(mine[right[size_t(j)]]));
                sum += weight;
            }
            if (!finite) continue;
            const double tolerance = sizeof(real) == 4 ? 1e-5 : 1e-12;
            require(sum <= 1 + tolerance && (!renormalise || sum >= 1 - tolerance), "a softmax", sum);
            double total = 0;
            for (int64_t i = 0; i < n; ++i) {
                require(std::isfinite(out[row * n + i]), "a finite gradient", double(out[row * n + i]), double(mine[i]));
                total += double(out[row * n + i]);
            }
            require(std::fabs(total) <= tolerance * double(k), "a gradient that sums to 0", total);
        }
        found.push_back(std::move(weights));
    }
    require_agreement(found, 64 * double(std::numeric_limits<real>::epsilon()));
}

}  // namespace

void routing(Input& in) {
    if (in.flag()) {
        any_router<float>(in);
    } else {
        any_router<double>(in);
    }
}

}  // namespace fuzz
