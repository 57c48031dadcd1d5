// The sure path of sigmoid_topk.cpp: any row at all.
#pragma once

#include "kth_largest.h"
#include "sigmoid_types.h"

namespace khot {
namespace {

// Halley on h = log P − log Q, increasing in the shift e, within [low, high]; returns t = exp(−e).
template <typename real, typename Evaluate>
double bracketed(double low, double high, double start, double extra_p, double extra_q,
                 const Evaluate& evaluate) {
    // Beyond half the range of u there is no root; and there a capped u would not be a weight of 1.
    const double limit = SINGLE<real> ? 60 : 500;
    double e = start > low ? (start < high ? start : high) : low;
    e = e > limit ? limit : (e < -limit ? -limit : e);
    low -= 1;  // the root can lie on the edge, and rounding just beyond it
    high += 1;
    for (int steps = 0; steps < (SINGLE<real> ? 10 : 14); ++steps) {
        const SplitSums sums = evaluate(std::exp(-e));
        const double p = sums.below[0] + extra_p, q = sums.above[0] + extra_q, f = p - q;
        if (f == 0) break;
        if (f < 0 && e > low) low = e;
        if (f > 0 && e < high) high = e;
        const double h = std::log(p / q), dp = sums.below[1] / p, dq = sums.above[1] / q;
        const double slope = dp + dq;
        const double bend = sums.below[2] / p - sums.above[2] / q - dp * dp + dq * dq;
        const double curved = 2 * slope * slope - h * bend;
        const double step = curved > 0 ? 2 * h * slope / curved : h / slope;
        const double proposal = e - step;
        const bool inside = proposal >= low && proposal <= high;  // NaN is not
        e = inside ? proposal : (low + high) / 2;
        e = e > limit ? limit : (e < -limit ? -limit : e);
        if (inside && std::fabs(step) < CLOSE<real>) break;
    }
    return std::exp(-e);
}

// `scratch` holds n reals. It fills row.y (and row.state and row.threshold) completely, with u if it is to be unfinished.
template <typename real>
void sure_row(const SigmoidTable<real>& kernel, Row<real> row, real* scratch) {
    const int64_t n = row.n;
    if (row.mask != nullptr) {
        apply_mask(row.x, row.mask, n, row.y);
        row.x = row.y;
    }
    const Census census = kernel.census(row.x, n);
    const auto keep = [&](real anchor, real t) {
        if (row.threshold == nullptr) return;
        row.threshold[0] = anchor;
        row.threshold[1] = t;
    };
    if (settle(row, census)) return keep(0, row.y[0] == row.y[0] ? real(0) : row.y[0]);  // NaN if they are
    const int64_t allowed = n - census.excluded;
    // Excluded entries are smaller than all others, so the order statistics of the whole row serve.
    const int64_t ceiling = int64_t(std::ceil(row.k)), floor = int64_t(std::floor(row.k));
    real next;
    const real upper = kth_and_next_largest(row.x, n, ceiling, scratch, &next), rate = row.rate;
    Gap gap;
    const real anchor = middle_of(upper, next, floor == ceiling, rate, &gap);
    const double low = std::log(row.k - double(ceiling - 1)) - std::log(double(allowed) - row.k) - gap.up;
    const double high = std::log(row.k) - std::log(double(floor) + 1 - row.k) + gap.down;

    kernel.exponentials(row.x, anchor, rate, row.y, n);
    const AtOne at = kernel.counts_at_one(row.y, n);
    const double strictly = double(at.above), weakly = double(at.above + at.equal);
    const bool ties_below = row.k - strictly <= weakly - row.k;
    const double excess = (ties_below ? strictly : weakly) - row.k;
    // Two or more ties at the anchor: if all else is far away, the root is where they share what is left.
    const double left = row.k - strictly, ties = double(at.equal);
    const double start = ties > 1 && left > 0.02 * ties && left < 0.98 * ties ? std::log(left / (ties - left)) : (low + high) / 2;
    const double t = bracketed<real>(low, high, start, excess > 0 ? excess : 0, excess < 0 ? -excess : 0,
                                     [&](double t) { return kernel.evaluate_split(row.y, real(t), ties_below, n); });
    keep(anchor, real(t));
    if (!row.unfinished) kernel.write(row.y, real(t), row.y, row.state, n);
}

}  // namespace
}  // namespace khot
