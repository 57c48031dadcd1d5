// Systematic and tree pivotal draws, and subsets by products of weights.
#include "inclusion.h"
#include "kernels.h"

namespace fuzz {
namespace {

template <typename real>
void of_inclusions(Input& in) {
    const Shape of = shape(in, 1, INT64_MAX);
    const int64_t rows = of.rows, n = of.n, k = in.below(n + 1), draws = 1 + in.below(3), kind = in.below(3);
    static const char* const names[] = {"systematic", "pivotal", "shuffled_systematic"};
    doing(names[kind], sizeof(real), of);
    const Exact<real> probs = inclusions<real>(in, rows, n, k);
    int64_t leaves = 1;
    while (leaves < n) leaves *= 2;
    const Exact<double> u = uniforms(in, draws * rows * (kind == 1 ? leaves - 1 : 1));
    const bool ordered = in.flag();
    const Exact<int64_t> order = permutations(in, ordered ? draws * rows : 0, n);
    Exact<unsigned char> bytes(kind == 2 ? 5 * n * draws * rows : 0);
    for (int64_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(in.random());
    std::vector<Exact<real>> found;
    for (const Way& way : ways()) {
        use(way);
        Exact<real> out(draws * rows * n);
        if (kind == 0) {
            khot::systematic(probs.get(), ordered ? order.get() : nullptr, u.get(), out.get(), draws, rows, n, k, way.threads);
        } else if (kind == 1) {
            require(khot::pivotal(probs.get(), ordered ? order.get() : nullptr, u.get(), leaves - 1, out.get(), draws, rows, n, k,
                                  way.threads),
                    "enough memory");
        } else {
            require(khot::shuffled_systematic(probs.get(), bytes.get(), u.get(), out.get(), draws, rows, n, k, way.threads),
                    "enough memory");
        }
        for (int64_t row = 0; row < draws * rows; ++row) {
            const real* mine = out.get() + row * n;
            require_draw(probs.get() + row % rows * n, n, k, [&](int64_t i) { return double(mine[i]); });
        }
        found.push_back(std::move(out));
    }
    require_agreement(found, 1);  // rounding may decide otherwise
}

void of_weights(Input& in) {
    const Shape of = shape(in, 1, 130);
    const int64_t rows = of.rows < 5 ? of.rows : 5, n = of.n, k = 1 + in.below(n), draws = 1 + in.below(3);
    const bool summed = in.flag();
    doing(summed ? "weighted_subsets" : "subsets", 8, {rows, n});
    Exact<double> weights(rows * n), summands(rows * n), possible(rows * n);
    const int64_t spread = in.below(4);
    for (int64_t row = 0; row < rows; ++row) {
        int64_t positive = 0;
        for (int64_t i = row * n; i < (row + 1) * n; ++i) {
            weights[i] = in.byte() < 24 ? 0 : std::exp(double(spread) * in.normal() - 1);
            positive += weights[i] > 0;
            summands[i] = in.uniform() + 1e-3;
        }
        for (int64_t i = row * n; i < (row + 1) * n && positive < k; ++i) {
            positive += weights[i] == 0;
            weights[i] = weights[i] == 0 ? 1 : weights[i];
        }
        for (int64_t i = row * n; i < (row + 1) * n; ++i) possible[i] = weights[i] > 0 ? 0.5 : 0;
    }
    const Exact<double> u = uniforms(in, draws * rows * (summed ? 2 * k : k));
    for (const Way& way : ways()) {
        use(way);
        Exact<int64_t> indices(draws * rows * k);
        const bool enough = summed ? khot::weighted_subsets(weights.get(), summands.get(), u.get(), indices.get(), draws, rows, n,
                                                            k, way.threads)
                                   : khot::subsets(weights.get(), u.get(), indices.get(), draws, rows, n, k, way.threads);
        require(enough, "enough memory");
        for (int64_t row = 0; row < draws * rows; ++row) {
            require_indices(possible.get() + row % rows * n, n, k, indices.get() + row * k);
        }
    }
}

}  // namespace

void draws(Input& in) {
    switch (in.below(3)) {
        case 0: of_inclusions<float>(in); break;
        case 1: of_inclusions<double>(in); break;
        default: of_weights(in);
    }
}

}  // namespace fuzz
