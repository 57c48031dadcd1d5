// What the parts of sigmoid_topk.cpp share: constants, sums, rows, and the table of loops per instruction set.
#pragma once

#include <cmath>
#include <cstdint>

#include "group.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

// How many evaluations the fast path may take.
constexpr int ROUNDS = 5;

// How many moments of the weights the first of them sums.
constexpr int MOMENTS = 4;

// Σy, as a count of the gates nearer to 1 and the sum of signed distances to the nearer of 0 and 1 (apart, since
// the count may cancel against k), and the first two derivatives of Σy in the shift.
struct Sums {
    double count, distance, slope, bend;

    void add(const Sums& other) {
        count += other.count;
        distance += other.distance;
        slope += other.slope;
        bend += other.bend;
    }
};

// Σy likewise, or all of it as distance (enough for a row that is not nearly hard), and Σ yᵐ(1 − y) for m = 1, 2, …
struct StartSums {
    double count, distance, moment[MOMENTS];

    void add(const StartSums& other) {
        count += other.count;
        distance += other.distance;
        for (int m = 0; m < MOMENTS; ++m) moment[m] += other.moment[m];
    }
};

// The state of the search in each row of a group.
template <typename real>
struct SearchGroup : Group<real> {
    real t[GROUP];
    real excess[GROUP], slope[GROUP], bend[GROUP];  // Σy − k, and the derivatives of Σy in the shift
    real moment[MOMENTS][GROUP];                    // those of StartSums
    int hard[GROUP];                                // 1: many weights may be near 1, and sums of them too rough
    real size[GROUP];                               // of the last step; 8 if it was none
    int certain[GROUP];                             // 1: the first step was exact enough

    void set_start(int r, const StartSums& sums) {
        excess[r] = real(sums.distance + (sums.count - this->k[r]));
        for (int m = 0; m < MOMENTS; ++m) moment[m][r] = real(sums.moment[m]);
        slope[r] = moment[0][r];
    }

    void set_sums(int r, const Sums& sums) {
        excess[r] = real(sums.distance + (sums.count - this->k[r]));
        slope[r] = real(sums.slope);
        bend[r] = real(sums.bend);
    }
};

// With the gates split at u = 1, Σ σ below it and Σ (1 − σ) above it, each with two derivatives.
struct SplitSums {
    double below[3], above[3];
};

// How many u are above and at 1.
struct AtOne {
    int64_t above, equal;
};

template <typename real>
struct SigmoidTable {
    void (*gaussian_anchors)(const real* x, int64_t n, int rows, real softness, Group<real>& group);
    // u = exp((x − anchor)·rate) and sums at t = 1, and t from them.
    StartSums (*start)(const real* x, real anchor, real rate, bool hard, real* u, int64_t n);
    void (*first_step)(SearchGroup<real>& group);
    // Sums at any t, and a better t from them.
    Sums (*evaluate)(const real* u, real t, int64_t n);
    void (*halley_step)(SearchGroup<real>& group);
    // Over the rows of a group: u and sums of all, sums of those listed, and the weights of those found.
    void (*start_rows)(const real* x, real* u, int64_t n, int count, SearchGroup<real>& group);
    void (*evaluate_rows)(const real* u, int64_t n, const int* rows, int count, SearchGroup<real>& group);
    void (*write_rows)(real* u, real* residual, int64_t n, int count, const SearchGroup<real>& group);
    void (*write)(const real* u, real t, real* y, real* residual, int64_t n);
    // For the sure path.
    void (*exponentials)(const real* x, real anchor, real rate, real* u, int64_t n);
    Census (*census)(const real* x, int64_t n);
    AtOne (*counts_at_one)(const real* u, int64_t n);
    SplitSums (*evaluate_split)(const real* u, real t, bool ties_below, int64_t n);
};

// A step of Halley's method smaller than this leaves an error of rounding size: its cube.
template <typename real>
constexpr double CLOSE = SINGLE<real> ? 8e-3 : 8e-6;

}  // namespace
}  // namespace khot
