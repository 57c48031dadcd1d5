// A short row and what its operators share: see small_rows.cpp.
#pragma once

#include <cmath>

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

}  // namespace
}  // namespace khot
