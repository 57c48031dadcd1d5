// Windows around soft ranks: see small_rows.cpp.
#pragma once

#include "small_row.h"

namespace khot {
namespace {

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

}  // namespace
}  // namespace khot
