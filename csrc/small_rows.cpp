// Operators with a row for every rank, and their gradients, where rows are short: softsort, neuralsort, iterative and
// successive softmax, soft sorting networks, windows around soft ranks, and successive halving.
//
// A small call costs what its operations cost to start; here it is one. Everything is in double and computed again for the
// gradient, in which dl = p (g − ⟨p, g⟩) for the logits l of a row with softmax p. What they mean is said in
// khot/relaxations/rows and ranks, one file each.
#include <atomic>
#include <cstdlib>

#include "small_halving.h"
#include "small_network.h"
#include "small_ranks.h"
#include "small_softmaxes.h"

namespace khot {
namespace {

bool any_kind(SmallKind kind, const Row& row, const double* g, double* out) {
    switch (kind) {
        case SmallKind::softsort: distances(row, false, g, out); break;
        case SmallKind::iterative: distances(row, true, g, out); break;
        case SmallKind::neuralsort: neuralsort(row, g, out); break;
        case SmallKind::successive_softmax: successive(row, g, out); break;
        case SmallKind::network: network(row, g, out); break;
        case SmallKind::pairwise: return pairwise(row, g, out);
        case SmallKind::soft_rank: return ranked(row, g, out);
        case SmallKind::successive_halving: halving(row, g, out); break;
    }
    return true;
}

}  // namespace

template <typename real>
int small_rows(SmallKind kind, const real* x, const real* grad, const double* tau, int64_t tau_stride, const double* window,
               int64_t window_stride, const NetworkLayer* layers, int64_t depth, bool cauchy, bool matrix, real* out, int64_t rows,
               int64_t n, int64_t k, int threads) {
    std::atomic<int> found{1};
    int64_t comparators = 0;
    for (int64_t layer = 0; layer < depth; ++layer) comparators += layers[layer].groups * layers[layer].distance;
    int64_t table = 4 * comparators;
    if (kind == SmallKind::successive_softmax) table = 2 * k * n;
    if (kind == SmallKind::successive_halving) table = 4 * (ROUNDS + 2) * n;
    parallel_ranges(useful_threads(rows * n * k, threads), rows, [&](int64_t begin, int64_t end) {
        const int64_t size = matrix ? k * n : n;
        double* memory = static_cast<double*>(std::malloc(sizeof(double) * size_t(10 * n + table + size)));
        if (memory == nullptr) {
            found = -1;
            return;
        }
        double *values = memory, *g = memory + n, *next = memory + 2 * n, *result = next + 7 * n + table;
        for (int64_t r = begin; r < end; ++r) {
            const Row row{values,   n,        k,        tau[r * tau_stride], window[r * window_stride], layers,
                          depth,    cauchy,   next,     next + n,            next + 2 * n,              next + 3 * n,
                          next + 4 * n, next + 5 * n, next + 7 * n, reinterpret_cast<int64_t*>(next + 6 * n),
                          matrix ? result : nullptr};
            bool ordinary = true;
            for (int64_t i = 0; i < n; ++i) {
                values[i] = x[r * n + i];
                ordinary &= values[i] > -HUGE_SCORE && values[i] < HUGE_SCORE;
                if (grad != nullptr) g[i] = grad[r * n + i];
            }
            if (!ordinary) {
                found = 0;
                break;
            }
            if (!any_kind(kind, row, grad == nullptr ? nullptr : g, matrix ? next + 4 * n : result)) {
                found = 0;
                break;
            }
            for (int64_t i = 0; i < size; ++i) out[r * size + i] = real(result[i]);
        }
        std::free(memory);
    });
    return found;
}

template int small_rows(SmallKind, const float*, const float*, const double*, int64_t, const double*, int64_t,
                        const NetworkLayer*, int64_t, bool, bool, float*, int64_t, int64_t, int64_t, int);
template int small_rows(SmallKind, const double*, const double*, const double*, int64_t, const double*, int64_t,
                        const NetworkLayer*, int64_t, bool, bool, double*, int64_t, int64_t, int64_t, int);

}  // namespace khot
