// Rows of scores with a mask, budgets and temperatures, each for every row or one for all.
#pragma once

#include <cmath>
#include <limits>

#include "checks.h"

namespace fuzz {

template <typename real>
struct Problem {
    Shape shape;
    Exact<real> x;
    bool masked;
    Exact<unsigned char> mask;
    int64_t k_stride;
    Exact<double> k;
    int64_t temperature_stride;
    Exact<real> temperature;

    Problem(Input& in, Shape shape, Values values, bool whole)
        : shape(shape),
          x(shape.size(), in.below(4)),
          masked(in.below(3) == 0),
          mask(masked ? shape.size() : 0),
          k_stride(in.below(2)),
          k(k_stride == 0 ? 1 : shape.rows),
          temperature_stride(in.below(2)),
          temperature(temperature_stride == 0 ? 1 : shape.rows, in.below(2)) {
        for (int64_t i = 0; i < k.size(); ++i) k[i] = budget(in, shape.n, whole);
        for (int64_t i = 0; i < temperature.size(); ++i) temperature[i] = fuzz::temperature<real>(in);
        fill(in, x.get(), x.size(), values);
        const double share = in.uniform();
        for (int64_t i = 0; i < mask.size(); ++i) mask[i] = in.uniform() < share;
    }

    const unsigned char* mask_or_null() const { return masked ? mask.get() : nullptr; }
    double budget_of(int64_t row) const { return k[row * k_stride]; }
    double temperature_of(int64_t row) const { return double(temperature[row * temperature_stride]); }

    // A score as the operators see it.
    double score(int64_t row, int64_t i) const {
        const int64_t at = row * shape.n + i;
        return masked && !mask[at] ? -HUGE_VAL : double(x[at]);
    }
};

// What is special in a row.
struct Facts {
    bool nan = false;
    int64_t allowed = 0, surely = 0;
};

template <typename real>
Facts facts(const Problem<real>& problem, int64_t row) {
    Facts found;
    for (int64_t i = 0; i < problem.shape.n; ++i) {
        const double score = problem.score(row, i);
        found.nan |= score != score;
        found.allowed += score != -HUGE_VAL;
        found.surely += score == HUGE_VAL;
    }
    return found;
}

// How far the sum of weights may be from k: khot.testing.requirements.sum_tolerance, and what exponentials flush to 0.
template <typename real>
double sum_tolerance(double k, int64_t n) {
    return sizeof(real) == 4 ? 1e-5 * k + 1e-20 * double(n) : 1e-9 * k + 1e-150 * double(n);
}

// Weights of the threshold family.
template <typename real>
void require_weights(const Problem<real>& problem, const Exact<real>& y) {
    const int64_t n = problem.shape.n;
    for (int64_t row = 0; row < problem.shape.rows; ++row) {
        const Facts found = facts(problem, row);
        const double k = problem.budget_of(row);
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
            const double weight = double(y[row * n + i]), score = problem.score(row, i);
            if (found.nan) {
                require(weight != weight, "NaN in the whole row of a NaN", weight);
                continue;
            }
            require(weight >= 0 && weight <= 1, "a weight in [0, 1]", weight, score);
            if (score == -HUGE_VAL) require(weight == 0, "weight 0 of what is excluded", weight);
            if (score == HUGE_VAL && double(found.surely) <= k) require(weight == 1, "weight 1 at +inf", weight);
            if (double(found.allowed) <= k && score != -HUGE_VAL) require(weight == 1, "weight 1 of at most k", weight);
            sum += weight;
        }
        const double wanted = double(found.allowed) < k ? double(found.allowed) : k;
        if (!found.nan) require(std::fabs(sum - wanted) <= sum_tolerance<real>(wanted, n), "Σ = k", sum, wanted);
    }
}

// How far weights of two instruction sets may be apart: twice the bound of tests/unit/kernels/test_gated_kernels.py, at the
// steepest point of the gates.
template <typename real>
double weight_tolerance(int64_t n, double norm) {
    return 16 * double(std::numeric_limits<real>::epsilon()) * (3 + std::log(double(n) + 1)) / (norm - 1);
}

}  // namespace fuzz
