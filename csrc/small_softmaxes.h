// Softmaxes of distances and of scores without those drawn before: see small_rows.cpp.
#pragma once

#include "small_row.h"

namespace khot {
namespace {

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

constexpr double STEEPEST = 1e30;  // as in khot/relaxations/rows/successive_softmax.py

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
    const double most = STEEPEST * row.tau;
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
        for (int64_t j = 0; j < n; ++j) {
            const double slope = later[j] + now[j];
            later[j] = slope > most ? most : slope < -most ? -most : slope;
        }
    }
    for (int64_t j = 0; j < n; ++j) out[j] = later[j] / row.tau;
}

}  // namespace
}  // namespace khot
