// Hard selections and sorts, against a stable sort.
#include <algorithm>
#include <numeric>

#include "kernels.h"
#include "problem.h"
#include "sorted.h"

namespace fuzz {
namespace {

template <typename real>
void hard(Input& in) {
    const Problem<real> problem(in, shape(in, 0, INT64_MAX), Values::any, true);
    const int64_t rows = problem.shape.rows, n = problem.shape.n;
    doing("hard_topk", sizeof(real), problem.shape);
    Exact<int64_t> k(problem.k.size());
    for (int64_t i = 0; i < k.size(); ++i) k[i] = int64_t(problem.k[i]);
    for (const Way& way : ways()) {
        use(way);
        Exact<real> out(problem.shape.size(), 1);
        require(khot::hard_topk(problem.x.get(), problem.mask_or_null(), k.get(), problem.k_stride, out.get(), rows, n,
                                way.threads),
                "enough memory");
        for (int64_t row = 0; row < rows; ++row) {
            const std::vector<int64_t> best = sorted(n, true, [&](int64_t i) { return problem.score(row, i); });
            for (int64_t j = 0; j < n; ++j) {
                const bool wanted = double(j) < problem.budget_of(row) && problem.score(row, best[size_t(j)]) != -HUGE_VAL;
                const double got = double(out[row * n + best[size_t(j)]]);
                require(got == (wanted ? 1 : 0), "ones at the k largest", got, double(j));
            }
        }
    }
}

template <typename real>
void argsort(Input& in) {
    const Shape of = shape(in, 0, INT64_MAX);
    const bool descending = in.flag(), with_values = in.flag();
    doing(descending ? "argsort, descending" : "argsort", sizeof(real), of);
    Exact<real> x(of.size(), in.below(3));
    fill(in, x.get(), x.size(), Values::any);
    for (const Way& way : ways()) {
        use(way);
        Exact<real> values(with_values ? of.size() : 0);
        Exact<int64_t> indices(of.size());
        require(khot::argsort(x.get(), descending, with_values ? values.get() : nullptr, indices.get(), of.rows, of.n,
                              way.threads),
                "enough memory");
        for (int64_t row = 0; row < of.rows; ++row) {
            const real* mine = x.get() + row * of.n;
            const std::vector<int64_t> right = sorted(of.n, descending, [&](int64_t i) { return double(mine[i]); });
            for (int64_t j = 0; j < of.n; ++j) {
                const int64_t at = row * of.n + j, index = right[size_t(j)];
                require(indices[at] == index, "a stable sort", double(indices[at]), double(index));
                if (with_values) require(std::memcmp(&values[at], &mine[index], sizeof(real)) == 0, "the values", double(j));
            }
        }
    }
}

}  // namespace

void order(Input& in) {
    switch (in.below(4)) {
        case 0: hard<float>(in); break;
        case 1: hard<double>(in); break;
        case 2: argsort<float>(in); break;
        default: argsort<double>(in);
    }
}

}  // namespace fuzz
