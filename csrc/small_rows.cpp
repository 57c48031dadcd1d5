// Operators with a row for every rank, and their gradients, where rows are short: softsort, neuralsort, iterative and
// successive softmax, and soft sorting networks.
//
// A small call costs what its operations cost to start; here it is one. Everything is in double and computed again for the
// gradient, in which dl = p (g − ⟨p, g⟩) for the logits l of a row with softmax p. What they mean is said in
// khot/relaxations/rows, one file each.
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

constexpr double HUGE_SCORE = 1e10;  // as in khot/relaxations/_small_rows.py
constexpr double PI = 3.14159265358979323846;

double sign(double a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }

// What one row is given, and room for 6n numbers and a table.
struct Row {
    const double* x;
    int64_t n, k;
    double tau;
    const NetworkLayer* layers;
    int64_t depth;
    bool cauchy;
    double *a, *b, *c, *d, *e, *f, *table;
    int64_t* order;
};

// The first k of a stable sort from the largest down.
void best_first(const Row& row) {
    bool* taken = reinterpret_cast<bool*>(row.f);
    for (int64_t i = 0; i < row.n; ++i) taken[i] = false;
    for (int64_t r = 0; r < row.k; ++r) {
        int64_t best = -1;
        for (int64_t i = 0; i < row.n; ++i) {
            if (!taken[i] && (best < 0 || row.x[i] > row.x[best])) best = i;
        }
        taken[best] = true;
        row.order[r] = best;
    }
}

// p ← softmax of logits l.
void softmax(const double* l, int64_t n, double* p) {
    double most = l[0], sum = 0;
    for (int64_t j = 1; j < n; ++j) most = l[j] > most ? l[j] : most;
    for (int64_t j = 0; j < n; ++j) sum += p[j] = std::exp(l[j] - most);
    for (int64_t j = 0; j < n; ++j) p[j] /= sum;
}

// dl from p and g.
void softmax_gradient(const double* p, const double* g, int64_t n, double* dl) {
    double mean = 0;
    for (int64_t j = 0; j < n; ++j) mean += p[j] * g[j];
    for (int64_t j = 0; j < n; ++j) dl[j] = p[j] * (g[j] - mean);
}

// Logits −|x_[r] − x_j|/τ, or −(x_[r] − x_j)²/τ² without the r − 1 before. y, or the gradient where g is given.
void distances(const Row& row, bool squared, const double* g, double* out) {
    best_first(row);
    double *l = row.a, *p = row.b, *dl = row.c;
    for (int64_t j = 0; j < row.n; ++j) out[j] = 0;
    for (int64_t r = 0; r < row.k; ++r) {
        const double best = row.x[row.order[r]];
        for (int64_t j = 0; j < row.n; ++j) {
            const double apart = (best - row.x[j]) / row.tau;
            l[j] = -(squared ? apart * apart : std::fabs(apart));
        }
        for (int64_t earlier = 0; squared && earlier < r; ++earlier) l[row.order[earlier]] = -INFINITY;
        softmax(l, row.n, p);
        if (g == nullptr) {
            for (int64_t j = 0; j < row.n; ++j) out[j] += p[j];
            continue;
        }
        softmax_gradient(p, g, row.n, dl);
        double total = 0;
        for (int64_t j = 0; j < row.n; ++j) {
            const double apart = (best - row.x[j]) / row.tau;
            const double d = dl[j] * (squared ? 2 * apart : sign(apart)) / row.tau;
            out[j] += d;
            total += d;
        }
        out[row.order[r]] -= total;
    }
}

// Logits ((n + 1 − 2r) x_j − A_j)/τ, A_j = Σ_l |x_j − x_l|.
void neuralsort(const Row& row, const double* g, double* out) {
    double *l = row.a, *p = row.b, *dl = row.c, *sums = row.d, *of_sums = row.e;
    for (int64_t j = 0; j < row.n; ++j) {
        sums[j] = of_sums[j] = out[j] = 0;
        for (int64_t i = 0; i < row.n; ++i) sums[j] += std::fabs(row.x[j] - row.x[i]);
    }
    for (int64_t r = 1; r <= row.k; ++r) {
        const double slope = double(row.n + 1 - 2 * r);
        // Relative to one of the scores: beside large ones the sums keep their digits.
        for (int64_t j = 0; j < row.n; ++j) l[j] = (slope * (row.x[j] - row.x[0]) - sums[j]) / row.tau;
        softmax(l, row.n, p);
        if (g == nullptr) {
            for (int64_t j = 0; j < row.n; ++j) out[j] += p[j];
            continue;
        }
        softmax_gradient(p, g, row.n, dl);
        for (int64_t j = 0; j < row.n; ++j) {
            out[j] += slope * dl[j] / row.tau;
            of_sums[j] -= dl[j] / row.tau;
        }
    }
    for (int64_t j = 0; g != nullptr && j < row.n; ++j) {
        for (int64_t i = 0; i < row.n; ++i) out[j] += (of_sums[j] + of_sums[i]) * sign(row.x[j] - row.x[i]);
    }
}

int64_t largest_of(const double* alpha, int64_t n) {
    int64_t top = 0;
    for (int64_t j = 1; j < n; ++j) top = alpha[j] > alpha[top] ? j : top;
    return top;
}

// The logsumexp of all but one.
double of_others(const double* alpha, int64_t n, int64_t without) {
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; ++j) most = j != without && alpha[j] > most ? alpha[j] : most;
    for (int64_t j = 0; j < n; ++j) sum += j == without ? 0 : std::exp(alpha[j] - most);
    return most + std::log(sum);
}

// α ← α + log(1 − p)/τ after each draw p = softmax(α). Table: α of all draws.
void successive(const Row& row, const double* g, double* out) {
    const int64_t n = row.n;
    double *alpha = row.table, *p = row.a;
    for (int64_t j = 0; j < n; ++j) {
        alpha[j] = (row.x[j] - row.x[0]) / row.tau;
        out[j] = 0;
    }
    for (int64_t r = 0; r < row.k; ++r, alpha += n) {
        softmax(alpha, n, p);
        for (int64_t j = 0; j < n; ++j) out[j] += p[j];
        if (r + 1 == row.k) break;
        const int64_t top = largest_of(alpha, n);
        const double apart = alpha[top] - of_others(alpha, n, top);
        for (int64_t j = 0; j < n; ++j) {
            const double rest = j != top ? std::log1p(-p[j]) : apart > 30 ? -apart : -std::log1p(std::exp(apart));
            alpha[n + j] = alpha[j] + rest / row.tau;
        }
    }
    if (g == nullptr) return;
    double *later = row.b, *dp = row.c, *now = row.d;
    for (int64_t j = 0; j < n; ++j) later[j] = 0;
    for (int64_t r = row.k - 1; r >= 0; --r, alpha -= n) {
        softmax(alpha, n, p);
        const int64_t top = largest_of(alpha, n);
        for (int64_t j = 0; j < n; ++j) dp[j] = g[j] - (j == top ? 0 : later[j] / row.tau / (1 - p[j]));
        softmax_gradient(p, dp, n, now);
        if (r + 1 < row.k) {
            const double others = of_others(alpha, n, top), share = later[top] / row.tau;
            for (int64_t j = 0; j < n; ++j) now[j] += share * ((j == top ? 0 : std::exp(alpha[j] - others)) - p[j]);
        }
        for (int64_t j = 0; j < n; ++j) later[j] += now[j];
    }
    for (int64_t j = 0; j < n; ++j) out[j] = later[j] / row.tau;
}

double swap_chance(double apart, bool cauchy) {
    if (cauchy) return std::atan2(1.0, apart) / PI;
    return apart > 0 ? std::exp(-apart) / (1 + std::exp(-apart)) : 1 / (1 + std::exp(apart));
}

double swap_slope(double apart, bool cauchy) {
    if (cauchy) return 1 / (PI * (1 + apart * apart));
    const double e = std::exp(-std::fabs(apart));
    return e / ((1 + e) * (1 + e));
}

// body(number of the comparator, one wire, the other).
template <typename Body>
void for_comparators(const NetworkLayer& layer, int64_t first, const Body& body) {
    for (int64_t group = 0; group < layer.groups; ++group) {
        const int64_t at = layer.first + 2 * group * layer.distance;
        for (int64_t i = 0; i < layer.distance; ++i) {
            const int64_t other = at + (layer.mirrored ? 2 * layer.distance - 1 - i : layer.distance + i);
            body(first + group * layer.distance + i, at + i, other);
        }
    }
}

// As _network_passes.py has it, for the sum of the first k wires. Table: d, q, u − v and q̄ of each comparator.
void network(const Row& row, const double* g, double* out) {
    const int64_t n = row.n;
    double *values = row.a, *weights = row.b, *of_weights = row.c, *of_values = row.d;
    int64_t count = 0;
    for (int64_t layer = 0; layer < row.depth; ++layer) count += row.layers[layer].groups * row.layers[layer].distance;
    double *apart = row.table, *swap = apart + count, *weights_apart = swap + count, *of_swap = weights_apart + count;
    for (int64_t i = 0; i < n; ++i) {
        values[i] = (row.x[n - 1 - i] - row.x[0]) / row.tau;
        weights[i] = i < row.k ? 1 : 0;
        of_weights[i] = g == nullptr ? 0 : g[n - 1 - i];
        of_values[i] = 0;
    }
    int64_t first = 0;
    for (int64_t layer = 0; layer < row.depth; ++layer) {
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            apart[at] = values[i] - values[j];
            swap[at] = swap_chance(apart[at], row.cauchy);
            const double moved = swap[at] * apart[at];
            values[i] -= moved;
            values[j] += moved;
        });
        first += row.layers[layer].groups * row.layers[layer].distance;
    }
    for (int64_t layer = row.depth - 1; layer >= 0; --layer) {
        first -= row.layers[layer].groups * row.layers[layer].distance;
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            weights_apart[at] = weights[i] - weights[j];
            const double moved = swap[at] * weights_apart[at];
            weights[i] -= moved;
            weights[j] += moved;
        });
    }
    if (g == nullptr) {
        for (int64_t i = 0; i < n; ++i) out[i] = weights[n - 1 - i];
        return;
    }
    for (int64_t layer = 0; layer < row.depth; ++layer) {
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            const double difference = of_weights[i] - of_weights[j], moved = swap[at] * difference;
            of_swap[at] = -difference * weights_apart[at];
            of_weights[i] -= moved;
            of_weights[j] += moved;
        });
        first += row.layers[layer].groups * row.layers[layer].distance;
    }
    for (int64_t layer = row.depth - 1; layer >= 0; --layer) {
        first -= row.layers[layer].groups * row.layers[layer].distance;
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            const double difference = of_values[i] - of_values[j];
            const double slope = swap_slope(apart[at], row.cauchy);
            const double moved = swap[at] * difference - slope * (difference * apart[at] - of_swap[at]);
            of_values[i] -= moved;
            of_values[j] += moved;
        });
    }
    for (int64_t i = 0; i < n; ++i) out[i] = of_values[n - 1 - i] / row.tau;
}

void any_kind(SmallKind kind, const Row& row, const double* g, double* out) {
    switch (kind) {
        case SmallKind::softsort: return distances(row, false, g, out);
        case SmallKind::iterative: return distances(row, true, g, out);
        case SmallKind::neuralsort: return neuralsort(row, g, out);
        case SmallKind::successive_softmax: return successive(row, g, out);
        case SmallKind::network: return network(row, g, out);
    }
}

}  // namespace

template <typename real>
int small_rows(SmallKind kind, const real* x, const real* grad, double tau, const NetworkLayer* layers, int64_t depth,
               bool cauchy, real* out, int64_t rows, int64_t n, int64_t k, int threads) {
    std::atomic<int> found{1};
    int64_t comparators = 0;
    for (int64_t layer = 0; layer < depth; ++layer) comparators += layers[layer].groups * layers[layer].distance;
    const int64_t table = kind == SmallKind::network ? 4 * comparators : kind == SmallKind::successive_softmax ? k * n : 0;
    parallel_ranges(useful_threads(rows * n * k, threads), rows, [&](int64_t begin, int64_t end) {
        double* memory = static_cast<double*>(std::malloc(sizeof(double) * size_t(10 * n + table)));
        if (memory == nullptr) {
            found = -1;
            return;
        }
        double *values = memory, *g = memory + n, *result = memory + 2 * n, *next = memory + 3 * n;
        const Row row{values,       n,           k,           tau,         layers,      depth,       cauchy,
                      next,         next + n,    next + 2 * n, next + 3 * n, next + 4 * n, next + 5 * n, next + 7 * n,
                      reinterpret_cast<int64_t*>(next + 6 * n)};
        for (int64_t r = begin; r < end; ++r) {
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
            any_kind(kind, row, grad == nullptr ? nullptr : g, result);
            for (int64_t i = 0; i < n; ++i) out[r * n + i] = real(result[i]);
        }
        std::free(memory);
    });
    return found;
}

template int small_rows(SmallKind, const float*, const float*, double, const NetworkLayer*, int64_t, bool, float*, int64_t,
                        int64_t, int64_t, int);
template int small_rows(SmallKind, const double*, const double*, double, const NetworkLayer*, int64_t, bool, double*, int64_t,
                        int64_t, int64_t, int);

}  // namespace khot
