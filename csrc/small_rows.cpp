// Operators with a row for every rank, and their gradients, where rows are short: softsort, neuralsort, iterative and
// successive softmax, soft sorting networks, windows around soft ranks, and successive halving.
//
// A small call costs what its operations cost to start; here it is one. Everything is in double and computed again for the
// gradient, in which dl = p (g − ⟨p, g⟩) for the logits l of a row with softmax p. What they mean is said in
// khot/relaxations/rows and ranks, one file each.
#include <atomic>
#include <cmath>
#include <cstdlib>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

template <typename real>
struct SmallTable {
    real (*exponentials)(const real* l, int64_t n, real most, real* p);
    void (*logarithms)(real* v, int64_t n);
    void (*distance_sums)(const real* x, int64_t n, real* sums);
    void (*signed_sums)(const real* x, const real* v, int64_t n, real* out);
    void (*share_sums)(const real* e, const real* v, int64_t n, real* out);
    real (*window_gates)(const real* each, int64_t n, real step, real* p);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "small_rows.inl"
#include "dispatch.h"

namespace khot {
namespace {

const SmallTable<double>& loops() { return KHOT_PICK(f64::small_table); }

constexpr double HUGE_SCORE = 1e10;  // as in khot/relaxations/_small_rows.py
constexpr double PI = 3.14159265358979323846;
constexpr double IN_RANGE = 600;  // exponentials of it, and of differences, stay in the range of double
constexpr int64_t ROUNDS = 32;    // of a tournament of at most 2^31

double sign(double a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }

// What one row is given, and room for 6n numbers and a table.
struct Row {
    const double* x;
    int64_t n, k;
    double tau, window;
    const NetworkLayer* layers;
    int64_t depth;
    bool cauchy;
    double *a, *b, *c, *d, *e, *f, *table;
    int64_t* order;
    double* matrix;  // where the rows go one by one, or null
};

// A softmax p of rank r = 0, 1, …: into its row of the matrix, or into the sum of all.
void add(const Row& row, int64_t r, const double* p, double* out) {
    if (row.matrix != nullptr) {
        for (int64_t j = 0; j < row.n; ++j) row.matrix[r * row.n + j] = p[j];
    } else {
        for (int64_t j = 0; j < row.n; ++j) out[j] += p[j];
    }
}

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
    double most = l[0];
    for (int64_t j = 1; j < n; ++j) most = l[j] > most ? l[j] : most;
    const double share = 1 / loops().exponentials(l, n, most, p);
    for (int64_t j = 0; j < n; ++j) p[j] *= share;
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
            add(row, r, p, out);
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
    loops().distance_sums(row.x, row.n, sums);
    for (int64_t j = 0; j < row.n; ++j) of_sums[j] = out[j] = 0;
    for (int64_t r = 1; r <= row.k; ++r) {
        const double slope = double(row.n + 1 - 2 * r);
        // Relative to one of the scores: beside large ones the sums keep their digits.
        for (int64_t j = 0; j < row.n; ++j) l[j] = (slope * (row.x[j] - row.x[0]) - sums[j]) / row.tau;
        softmax(l, row.n, p);
        if (g == nullptr) {
            add(row, r - 1, p, out);
            continue;
        }
        softmax_gradient(p, g, row.n, dl);
        for (int64_t j = 0; j < row.n; ++j) {
            out[j] += slope * dl[j] / row.tau;
            of_sums[j] -= dl[j] / row.tau;
        }
    }
    if (g != nullptr) loops().signed_sums(row.x, of_sums, row.n, out);
}

int64_t largest_of(const double* alpha, int64_t n) {
    int64_t top = 0;
    for (int64_t j = 1; j < n; ++j) top = alpha[j] > alpha[top] ? j : top;
    return top;
}

// q ← softmax of α without its largest entry, from that with it; how far that is above the logsumexp of the others.
double without_largest(const double* alpha, const double* p, int64_t n, int64_t top, double* q) {
    double rest = 0;
    for (int64_t j = 0; j < n; ++j) rest += j == top ? 0 : p[j];
    if (rest > 1e-280) {
        for (int64_t j = 0; j < n; ++j) q[j] = j == top ? 0 : p[j] / rest;
        return std::log(p[top] / rest);
    }
    double most = -INFINITY;
    for (int64_t j = 0; j < n; ++j) {
        q[j] = j == top ? -INFINITY : alpha[j];
        most = q[j] > most ? q[j] : most;
    }
    const double sum = loops().exponentials(q, n, most, q);
    for (int64_t j = 0; j < n; ++j) q[j] /= sum;
    return alpha[top] - (most + std::log(sum));
}

// α ← α + log(1 − p)/τ after each draw p = softmax(α). Table: α and p of all draws.
void successive(const Row& row, const double* g, double* out) {
    const int64_t n = row.n;
    double *alpha = row.table, *p = row.table + row.k * n, *q = row.a, *rest = row.b;
    for (int64_t j = 0; j < n; ++j) {
        alpha[j] = (row.x[j] - row.x[0]) / row.tau;
        out[j] = 0;
    }
    for (int64_t r = 0; r < row.k; ++r, alpha += n, p += n) {
        softmax(alpha, n, p);
        add(row, r, p, out);
        if (r + 1 == row.k) break;
        const int64_t top = largest_of(alpha, n);
        const double apart = without_largest(alpha, p, n, top, q);
        for (int64_t j = 0; j < n; ++j) rest[j] = j == top ? 1 : 1 - p[j];
        loops().logarithms(rest, n);
        rest[top] = apart > 30 ? -apart : -std::log1p(std::exp(apart));
        for (int64_t j = 0; j < n; ++j) alpha[n + j] = alpha[j] + rest[j] / row.tau;
    }
    if (g == nullptr) return;
    double *later = row.b, *dp = row.c, *now = row.d;
    for (int64_t j = 0; j < n; ++j) later[j] = 0;
    for (int64_t r = row.k - 1; r >= 0; --r, alpha -= n, p -= n) {
        const int64_t top = largest_of(alpha, n);
        for (int64_t j = 0; j < n; ++j) dp[j] = g[j] - (j == top ? 0 : later[j] / row.tau / (1 - p[j]));
        softmax_gradient(p, dp, n, now);
        if (r + 1 < row.k) {
            const double share = later[top] / row.tau;
            without_largest(alpha, p, n, top, q);
            for (int64_t j = 0; j < n; ++j) now[j] += share * (q[j] - p[j]);
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

// Softmax over the entries of log σ((r + ½ − ρ)/w) + log σ((ρ − r + ½)/w) is a product of two gates over its sum, and with
// E = exp((ρ − r − ½)/w) that is 1/((1 + E)(1 + e^(−1/w)/E)): no exponential for each rank. y, or the gradient in ρ.
bool windows(const Row& row, const double* ranks, const double* g, double* out) {
    if (!(double(row.n) / row.window < IN_RANGE)) return false;
    double *each = row.a, *p = row.b, *dl = row.c;
    const double step = std::exp(-1 / row.window);
    for (int64_t j = 0; j < row.n; ++j) {
        each[j] = std::exp((ranks[j] - 1.5) / row.window);
        out[j] = 0;
    }
    for (int64_t r = 1; r <= row.k; ++r) {
        const double share = 1 / loops().window_gates(each, row.n, step, p);
        for (int64_t j = 0; j < row.n; ++j) p[j] *= share;
        if (g == nullptr) {
            add(row, r - 1, p, out);
        } else {
            softmax_gradient(p, g, row.n, dl);
            for (int64_t j = 0; j < row.n; ++j) {
                out[j] += dl[j] * (1 / (1 + each[j] / step) - each[j] / (1 + each[j])) / row.window;
            }
        }
        for (int64_t j = 0; j < row.n; ++j) each[j] *= step;
    }
    return true;
}

// ρ_i = ½ + Σ_j σ((x_j − x_i)/τ), of exponentials of the scores; h′ likewise.
bool pairwise(const Row& row, const double* g, double* out) {
    const int64_t n = row.n;
    double *e = row.d, *ranks = row.e, *v = row.f, most = row.x[0], least = row.x[0];
    for (int64_t j = 0; j < n; ++j) {
        most = row.x[j] > most ? row.x[j] : most;
        least = row.x[j] < least ? row.x[j] : least;
    }
    if (!((most - least) / row.tau < IN_RANGE)) return false;
    for (int64_t j = 0; j < n; ++j) e[j] = std::exp((row.x[j] - (most + least) / 2) / row.tau);
    loops().share_sums(e, nullptr, n, ranks);
    for (int64_t i = 0; i < n; ++i) ranks[i] += 0.5;
    if (g == nullptr) return windows(row, ranks, g, out);
    if (!windows(row, ranks, g, v)) return false;
    loops().share_sums(e, v, n, out);
    for (int64_t i = 0; i < n; ++i) out[i] /= row.tau;
    return true;
}

bool ranked(const Row& row, const double* g, double* out) {
    double *ranks = row.d, *v = row.e, *z = row.f;
    for (int64_t j = 0; j < row.n; ++j) z[j] = row.x[j] - row.x[0];
    if (!soft_rank(z, &row.tau, 0, true, ranks, row.order, 1, row.n, 1)) return false;
    if (g == nullptr) return windows(row, ranks, g, out);
    if (!windows(row, ranks, g, v)) return false;
    soft_rank_jacobian(v, row.order, &row.tau, 0, true, out, 1, row.n, 1);
    return true;
}

// A stable sort from the largest down, by insertion: s has the values, order where they were.
void sort_down(const double* v, int64_t m, double* s, int64_t* order) {
    for (int64_t i = 0; i < m; ++i) {
        int64_t at = i;
        for (; at > 0 && v[i] > s[at - 1]; --at) {
            s[at] = s[at - 1];
            order[at] = order[at - 1];
        }
        s[at] = v[i];
        order[at] = i;
    }
}

// Of the m entries of a round, sorted, the first b pass alone, and the others meet from both ends. Table: for each round the
// order, the sorted scores, the shares of the better ones, and the weights after it.
void halving(const Row& row, const double* g, double* out) {
    const int64_t n = row.n;
    struct Round {
        int64_t m, t, b;
        int64_t* order;
        double *sorted, *share, *after;
    } rounds[ROUNDS];
    int64_t depth = 0, m = n;
    double *v = row.a, *next = row.table;
    for (int64_t j = 0; j < n; ++j) v[j] = (row.x[j] - row.x[0]) / row.tau;
    while (m > row.k) {
        Round& round = rounds[depth++];
        round = {m, 0, 0, reinterpret_cast<int64_t*>(next), next + m, next + 2 * m, next + 3 * m};
        next += 4 * m;
        round.t = row.k > (m + 1) / 2 ? row.k : (m + 1) / 2;
        round.b = 2 * round.t - m;
        sort_down(v, m, round.sorted, round.order);
        for (int64_t i = 0; i < round.t; ++i) {
            const double best = round.sorted[i];
            v[i] = best;
            if (i < round.b) continue;
            const double other = round.sorted[m - 1 - (i - round.b)], w = 1 / (1 + std::exp(other - best));
            round.share[i] = w;
            v[i] = other + w * (best - other);
        }
        m = round.t;
    }
    double *weights = row.b, *before = row.c;
    for (int64_t i = 0; i < m; ++i) weights[i] = 1;
    for (int64_t r = depth - 1; r >= 0; --r) {
        const Round& round = rounds[r];
        for (int64_t i = 0; i < round.t; ++i) {
            round.after[i] = weights[i];
            before[round.order[i]] = i < round.b ? weights[i] : round.share[i] * weights[i];
            if (i >= round.b) before[round.order[round.m - 1 - (i - round.b)]] = (1 - round.share[i]) * weights[i];
        }
        for (int64_t i = 0; i < round.m; ++i) weights[i] = before[i];
    }
    if (g == nullptr) {
        for (int64_t j = 0; j < n; ++j) out[j] = weights[j];
        return;
    }
    // Down the rounds the gradient of the weights, which leaves that of the shares in `after`; and back that of the scores.
    double *of_weights = row.b, *of_scores = row.d, *now = row.e;
    for (int64_t j = 0; j < n; ++j) {
        of_weights[j] = g[j];
        of_scores[j] = 0;
    }
    for (int64_t r = 0; r < depth; ++r) {
        const Round& round = rounds[r];
        for (int64_t i = 0; i < round.t; ++i) {
            const double mine = of_weights[round.order[i]];
            now[i] = mine;
            if (i < round.b) continue;
            const double other = of_weights[round.order[round.m - 1 - (i - round.b)]], w = round.share[i];
            now[i] = w * mine + (1 - w) * other;
            round.after[i] *= mine - other;
        }
        for (int64_t i = 0; i < round.t; ++i) of_weights[i] = now[i];
    }
    for (int64_t r = depth - 1; r >= 0; --r) {
        const Round& round = rounds[r];
        for (int64_t i = 0; i < round.t; ++i) {
            const double d = of_scores[i];
            now[round.order[i]] = d;
            if (i < round.b) continue;
            const int64_t j = round.m - 1 - (i - round.b);
            const double w = round.share[i], apart = round.sorted[i] - round.sorted[j];
            const double moved = (round.after[i] + d * apart) * w * (1 - w);
            now[round.order[i]] = d * w + moved;
            now[round.order[j]] = d * (1 - w) - moved;
        }
        for (int64_t i = 0; i < round.m; ++i) of_scores[i] = now[i];
    }
    for (int64_t j = 0; j < n; ++j) out[j] = of_scores[j] / row.tau;
}

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
