// The k selected entries with their weights, and the Jacobian product of these.
#include "kernels.h"
#include "problem.h"
#include "sorted.h"

namespace fuzz {
namespace {

// The first k in the order of the scores, or these by position; what is excluded comes last.
template <typename real>
std::vector<int64_t> expected(const Problem<real>& problem, int64_t row, int64_t k, bool by_position) {
    const auto score = [&](int64_t i) { return problem.score(row, i); };
    std::vector<int64_t> best = sorted(problem.shape.n, true, score);
    best.resize(size_t(k));
    if (by_position) {
        std::sort(best.begin(), best.end(), [&](int64_t a, int64_t b) {
            const bool first = score(a) == -HUGE_VAL, second = score(b) == -HUGE_VAL;
            return first != second ? second : a < b;
        });
    }
    return best;
}

template <typename real>
void require_entries(const Problem<real>& problem, int64_t k, bool by_position, bool soft, const Exact<int64_t>& indices,
                     const Exact<real>& weights, const Exact<real>& values) {
    for (int64_t row = 0; row < problem.shape.rows; ++row) {
        const std::vector<int64_t> right = expected(problem, row, k, by_position);
        const bool nan = facts(problem, row).nan;
        double sum = 0;
        for (int64_t j = 0; j < k; ++j) {
            const int64_t at = row * k + j, index = right[size_t(j)];
            const double score = problem.score(row, index), weight = double(weights[at]), value = double(values[at]);
            require(indices[at] == index, "the indices of a stable sort", double(indices[at]), double(index));
            if (score == -HUGE_VAL) {
                require(value == 0 && weight == 0, "value 0 and weight 0 of what is excluded", value, weight);
                continue;
            }
            require(value == score || (value != value && score != score), "the value", value, score);
            if (nan) {
                require(weight != weight, "NaN weights beside a NaN", weight);
                continue;
            }
            require(soft ? weight >= 0 && weight <= 1 : weight == 1, "a weight in [0, 1]", weight);
            sum += weight;
        }
        require(sum <= double(k) * (1 + 1e-5), "Σ ≤ k", sum, double(k));
    }
}

template <typename real>
void any_entries(Input& in) {
    const Problem<real> problem(in, shape(in, 1, INT64_MAX), Values::any, true);
    const Shape of = problem.shape;
    const int64_t k = in.below(of.n + 1), rows = of.rows, n = of.n;
    const bool by_position = in.flag(), soft = in.below(4) > 0, keeps = soft && in.flag();
    doing("topk_entries and entries_jacobian", sizeof(real), of);
    const Exact<real> grad = gradients<real>(in, rows * k, 0);
    std::vector<Exact<real>> found;
    std::vector<Exact<int64_t>> places;
    for (const Way& way : ways()) {
        use(way);
        Exact<int64_t> indices(rows * k);
        Exact<real> weights(rows * k), values(rows * k), threshold(keeps ? 2 * rows : 0);
        const bool enough = khot::topk_entries(problem.x.get(), problem.mask_or_null(), k,
                                               soft ? problem.temperature.get() : nullptr, problem.temperature_stride,
                                               by_position, indices.get(), weights.get(), values.get(),
                                               keeps ? threshold.get() : nullptr, rows, n, way.threads);
        require(enough, "enough memory");
        require_entries(problem, k, by_position, soft, indices, weights, values);
        if (keeps && k > 0) {
            Exact<real> out(of.size());
            require(khot::entries_jacobian(problem.x.get(), problem.mask_or_null(), threshold.get(), indices.get(), grad.get(),
                                           problem.temperature.get(), problem.temperature_stride, out.get(), rows, n, k,
                                           way.threads),
                    "enough memory");
            for (int64_t row = 0; row < rows; ++row) {
                if (facts(problem, row).nan || !(double(n) / problem.temperature_of(row) < 1e37)) continue;
                for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                    require(std::isfinite(out[i]), "a finite product", double(out[i]), double(problem.x[i]));
                }
            }
        }
        found.push_back(std::move(weights));
        places.push_back(std::move(indices));
    }
    require_agreement(found, weight_tolerance<real>(n, 2));
    require_same(places);
}

}  // namespace

void entries(Input& in) {
    if (in.flag()) {
        any_entries<float>(in);
    } else {
        any_entries<double>(in);
    }
}

}  // namespace fuzz
