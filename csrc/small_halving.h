// A tournament of halving rounds: see small_rows.cpp.
#pragma once

#include "small_row.h"

namespace khot {
namespace {

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

}  // namespace
}  // namespace khot
