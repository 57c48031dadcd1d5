// Draws of one unit after the other: Brewer's method, elimination, and the cube.
#include "inclusion.h"
#include "kernels.h"

namespace fuzz {
namespace {

void brewer(Input& in) {
    const Shape of = shape(in, 1, 600);
    const int64_t rows = of.rows < 5 ? of.rows : 5, n = of.n, k = 1 + in.below(n), draws = 1 + in.below(2);
    doing("brewer", 8, {rows, n});
    const Exact<double> probs = inclusions<double>(in, rows, n, k), u = uniforms(in, draws * rows * k);
    for (const Way& way : ways()) {
        use(way);
        Exact<int64_t> indices(draws * rows * k);
        require(khot::brewer(probs.get(), u.get(), indices.get(), draws, rows, n, k, way.threads), "enough memory");
        for (int64_t row = 0; row < draws * rows; ++row) {
            require_indices(probs.get() + row % rows * n, n, k, indices.get() + row * k);
        }
    }
}

void eliminate(Input& in) {
    const Shape of = shape(in, 1, 1100);
    const int64_t rows = of.rows < 9 ? of.rows : 9, n = of.n, k = in.below(n + 1), draws = 1 + in.below(2);
    const bool kept = in.flag();
    doing(kept ? "eliminate, kept" : "eliminate", 8, {rows, n});
    const Exact<double> probs = inclusions<double>(in, rows, n, k), u = uniforms(in, draws * rows * (n - k));
    Exact<double> increasing(rows * n);
    Exact<int64_t> order(rows * n);
    for (int64_t row = 0; row < rows; ++row) {
        const double* mine = probs.get() + row * n;
        for (int64_t i = 0; i < n; ++i) order[row * n + i] = i;
        std::stable_sort(order.get() + row * n, order.get() + (row + 1) * n,
                         [&](int64_t a, int64_t b) { return mine[a] < mine[b]; });
        for (int64_t i = 0; i < n; ++i) increasing[row * n + i] = mine[order[row * n + i]];
    }
    const int64_t width = kept ? k : n - k;
    for (const Way& way : ways()) {
        use(way);
        Exact<int64_t> indices(draws * rows * width);
        require(khot::eliminate(increasing.get(), order.get(), u.get(), kept, indices.get(), draws, rows, n, k, way.threads),
                "enough memory");
        for (int64_t row = 0; row < draws * rows; ++row) {
            const double* mine = probs.get() + row % rows * n;
            std::vector<double> of_these(mine, mine + n);
            for (double& p : of_these) p = kept ? p : 1 - p;
            require_indices(of_these.data(), n, width, indices.get() + row * width);
        }
    }
}

// Columns as khot/designs/cube.py makes them: the sum first, 0 where nothing is random, the largest of each 1.
void cube(Input& in) {
    const Shape of = shape(in, 1, 130);
    const int64_t rows = of.rows < 5 ? of.rows : 5, n = of.n, k = in.below(n + 1), constraints = 1 + in.below(4);
    doing("cube", 8, {rows, n});
    const Exact<double> probs = inclusions<double>(in, rows, n, k), u = uniforms(in, rows * n);
    Exact<double> columns(rows * n * constraints);
    Exact<int64_t> order = permutations(in, rows, n);
    for (int64_t row = 0; row < rows; ++row) {
        const auto open = [&](int64_t i) { return probs[row * n + i] > 0 && probs[row * n + i] < 1; };
        for (int64_t j = 0; j < constraints; ++j) {
            double most = 1e-300;
            for (int64_t i = 0; i < n; ++i) {
                const double value = j == 0 ? 1 : in.normal() / probs[row * n + i], used = open(i) ? value : 0;
                columns[(row * n + i) * constraints + j] = used;
                most = std::fmax(most, std::fabs(used));
            }
            for (int64_t i = 0; i < n; ++i) columns[(row * n + i) * constraints + j] /= most;
        }
        std::stable_partition(order.get() + row * n, order.get() + (row + 1) * n, open);
    }
    for (const Way& way : ways()) {
        use(way);
        Exact<bool> out(rows * n);
        require(khot::cube(probs.get(), columns.get(), order.get(), u.get(), out.get(), 1, rows, n, constraints, way.threads),
                "enough memory");
        for (int64_t row = 0; row < rows; ++row) {
            require_draw(probs.get() + row * n, n, k, [&](int64_t i) { return out[row * n + i] ? 1.0 : 0.0; });
        }
    }
}

}  // namespace

void splitting(Input& in) {
    switch (in.below(3)) {
        case 0: brewer(in); break;
        case 1: eliminate(in); break;
        default: cube(in);
    }
}

}  // namespace fuzz
