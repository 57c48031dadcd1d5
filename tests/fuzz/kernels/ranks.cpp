// Projections on the permutahedron, soft ranks, and their Jacobian products.
#include <algorithm>

#include "kernels.h"
#include "problem.h"

namespace fuzz {
namespace {

// From the largest down; within a range in which no sum of n of them loses what is asked of it.
template <typename real>
Exact<real> falling(Input& in, int64_t rows, int64_t n, bool positive) {
    static const double scales[] = {1, 1, 1e-3, 30, 1e3};
    const double scale = in.one_of(scales);
    const bool ties = in.flag();
    Exact<real> x(rows * n, in.below(3));
    for (int64_t i = 0; i < x.size(); ++i) {
        const double value = ties ? double(int(in.byte()) % 5) : in.normal();
        x[i] = real(positive ? std::fabs(scale * value) + 1e-3 : scale * value);
    }
    for (int64_t row = 0; row < rows; ++row) std::sort(x.get() + row * n, x.get() + (row + 1) * n, [](real a, real b) { return a > b; });
    return x;
}

template <typename real>
void projections(Input& in) {
    static const khot::Projection kinds[] = {khot::Projection::l2, khot::Projection::kl, khot::Projection::log_kl};
    const khot::Projection kind = in.one_of(kinds);
    const Shape of = shape(in, 1, INT64_MAX);
    const int64_t rows = of.rows, n = of.n;
    const bool same_s = in.flag(), same_w = in.flag();
    doing(kind == khot::Projection::l2 ? "isotonic, l2" : "isotonic, kl", sizeof(real), of);
    const Exact<real> s = falling<real>(in, same_s ? 1 : rows, n, false);
    const Exact<real> w = falling<real>(in, same_w ? 1 : rows, n, kind == khot::Projection::kl);
    const Exact<real> values = gradients<real>(in, of.size(), 0);
    for (const Way& way : ways()) {
        use(way);
        Exact<real> p(of.size()), sums(of.size());
        Exact<int64_t> start(of.size());
        require(khot::isotonic(kind, s.get(), same_s ? 0 : n, w.get(), same_w ? 0 : n, p.get(), start.get(), rows, n, way.threads),
                "enough memory");
        khot::block_sums(values.get(), start.get(), sums.get(), rows, n, way.threads);
        for (int64_t row = 0; row < rows; ++row) {
            const real* weights = w.get() + (same_w ? 0 : row * n);
            double of_p = 0, of_w = 0, size = 0, total = 0, direct = 0;
            for (int64_t i = 0; i < n; ++i) {
                const int64_t at = row * n + i, first = start[at];
                require(first == i || (i > 0 && first == start[at - 1]), "blocks that follow each other", double(first), double(i));
                require(std::isfinite(p[at]), "a finite projection", double(p[at]));
                require(std::isfinite(sums[at]), "a finite sum", double(sums[at]));
                of_p += double(p[at]);
                of_w += double(weights[i]);
                size += std::fabs(double(weights[i])) + std::fabs(double(p[at]));
                total += first == i ? double(sums[at]) : 0;
                direct += double(values[at]);
            }
            const double tolerance = sizeof(real) == 4 ? 1e-5 : 1e-12;
            // The entries of a row of log_kl sum to no constant; their exponentials do, where they are in range.
            if (kind != khot::Projection::log_kl) require(std::fabs(of_p - of_w) <= tolerance * size, "Σp = Σw", of_p, of_w);
            require(std::fabs(total - direct) <= tolerance * double(n), "blocks that cover the row", total, direct);
        }
    }
}

template <typename real>
void soft(Input& in) {
    const Problem<real> problem(in, shape(in, 0, INT64_MAX), Values::any, true);
    const Shape of = problem.shape;
    const int64_t rows = of.rows, n = of.n;
    const bool descending = in.flag();
    doing("soft_rank", sizeof(real), of);
    const Exact<real> grad = gradients<real>(in, of.size(), 0);
    std::vector<Exact<int64_t>> orders;
    for (const Way& way : ways()) {
        use(way);
        Exact<real> ranks(of.size(), 1), out(of.size(), 1);
        Exact<int64_t> order(of.size());
        require(khot::soft_rank(problem.x.get(), problem.temperature.get(), problem.temperature_stride, descending, ranks.get(),
                                order.get(), rows, n, way.threads),
                "enough memory");
        khot::soft_rank_jacobian(grad.get(), order.get(), problem.temperature.get(), problem.temperature_stride, descending,
                                 out.get(), rows, n, way.threads);
        for (int64_t row = 0; row < rows; ++row) {
            bool nan = false;
            double sum = 0;
            std::vector<bool> seen(static_cast<size_t>(n));
            for (int64_t i = 0; i < n; ++i) {
                const int64_t entry = order[row * n + i], index = entry < 0 ? ~entry : entry;
                require(index >= 0 && index < n && !seen[size_t(index)], "a permutation", double(index));
                seen[size_t(index)] = true;
                nan |= problem.x[row * n + i] != problem.x[row * n + i];
                sum += double(ranks[row * n + i]);
            }
            if (n > 0) require(order[row * n] < 0, "a block at the beginning");
            if (nan) continue;
            const double tolerance = sizeof(real) == 4 ? 1e-5 : 1e-9, right = double(n) * double(n + 1) / 2;
            require(std::fabs(sum - right) <= tolerance * right, "Σ ranks = n(n + 1)/2", sum, right);
            for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                const double rank = double(ranks[i]), slack = tolerance * double(n);
                require(rank >= 1 - slack && rank <= double(n) + slack, "a rank from 1 to n", rank, double(problem.x[i]));
                if (problem.temperature_of(row) > 1e-30) require(std::isfinite(out[i]), "a finite product", double(out[i]));
            }
        }
        orders.push_back(std::move(order));
    }
    require_same(orders);
}

}  // namespace

void ranks(Input& in) {
    switch (in.below(4)) {
        case 0: projections<float>(in); break;
        case 1: projections<double>(in); break;
        case 2: soft<float>(in); break;
        default: soft<double>(in);
    }
}

}  // namespace fuzz
