// Rows of scores with their budgets, for the kernels of the threshold family, and those rows that need no root.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace khot {
namespace {

// Sums in `real` run over this many elements, and are then added up in double.
constexpr int64_t SUM_BLOCK = 1024;

template <typename real>
constexpr bool SINGLE = sizeof(real) == 4;

// 1/τ; it and its double are finite even for a subnormal τ, so that 0·rate is 0.
template <typename real>
real rate_of(real temperature) {
    const real rate = 1 / temperature, largest = real(SINGLE<real> ? 1e38 : 1e307);
    return rate < largest ? rate : largest;
}

// One row: its input, its budget and where its result goes.
template <typename real>
struct Row {
    const real* x;
    const unsigned char* mask;  // or null: 0 excludes
    double k;
    real rate;
    real* y;
    real* state;  // or null: see gate_jacobian.cpp
    int64_t n;
    real* threshold = nullptr;  // or where two numbers go: see sigmoid_topk() in kernels.h
    bool unfinished = false;    // see sigmoid_thresholds() in kernels.h
};

// All rows.
template <typename real>
struct Rows {
    const real* x;
    const unsigned char* mask;
    const double* k;
    int64_t k_stride;
    const real* temperature;
    int64_t temperature_stride;
    real* y;
    real* state;
    int64_t n;
    real* threshold = nullptr;
    bool unfinished = false;

    Row<real> operator[](int64_t r) const {
        return {x + r * n,
                mask == nullptr ? nullptr : mask + r * n,
                k[r * k_stride],
                rate_of(temperature[r * temperature_stride]),
                y + r * n,
                state == nullptr ? nullptr : state + r * n,
                n,
                threshold == nullptr ? nullptr : threshold + 2 * r,
                unfinished};
    }
};

// The scores of n entries, −inf where the mask excludes, into `to`.
template <typename real>
void apply_mask(const real* x, const unsigned char* mask, int64_t n, real* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = mask[i] ? x[i] : -real(HUGE_VAL);
}

// What is not finite in a row.
struct Census {
    int64_t excluded, surely, nan;  // −inf, +inf, NaN
};

// Memory of one thread, taken when the first row needs it.
template <typename real>
class Scratch {
public:
    explicit Scratch(int64_t n) : n_(n) {}
    ~Scratch() { std::free(memory_); }
    Scratch(const Scratch&) = delete;

    real* get() {  // or null
        if (memory_ == nullptr) memory_ = static_cast<real*>(std::malloc(sizeof(real) * size_t(n_)));
        return memory_;
    }

private:
    int64_t n_;
    real* memory_ = nullptr;
};

// Fills the weights of a row that needs no root: with a NaN, with k or fewer allowed entries, or with k or more at
// +inf. No score can move such a weight, so its state is 0, whose slope is 0. False if the row does need a root.
template <typename real>
bool settle(const Row<real>& row, const Census& census) {
    const real infinity = real(HUGE_VAL);
    const auto fill = [&](int64_t i, real weight) {
        row.y[i] = weight;
        if (row.state != nullptr) row.state[i] = weight == weight ? real(0) : weight;
    };
    const int64_t n = row.n, allowed = n - census.excluded;
    if (census.nan > 0 || row.k != row.k) {
        for (int64_t i = 0; i < n; ++i) fill(i, real(NAN));
    } else if (double(allowed) <= row.k) {
        for (int64_t i = 0; i < n; ++i) fill(i, row.x[i] == -infinity ? real(0) : real(1));
    } else if (double(census.surely) >= row.k) {
        const double share = census.surely > 0 && row.k > 0 ? row.k / double(census.surely) : 0;
        for (int64_t i = 0; i < n; ++i) fill(i, row.x[i] == infinity ? real(share) : real(0));
    } else {
        return false;
    }
    return true;
}

// Where the sure paths put the zero of a row, in the middle of the gap that an integer k lies in (else at its ⌈k⌉-th
// largest score), so that the tails on both sides of the gap keep their digits; and how far, in units of τ, the ends of
// the gap are from there. Any float will do for the zero: the differences from it are exact enough, the root is not it.
struct Gap {
    double up, down;
};

template <typename real>
real middle_of(real upper, real next, bool integer, real rate, Gap* gap) {
    const real middle = integer ? upper / 2 + next / 2 : upper;
    const auto distance = [&](real from, real to) {
        const double d = (double(from) - double(to)) * double(rate), limit = 1e4;
        return d < limit ? d : limit;
    };
    *gap = integer ? Gap{distance(upper, middle), distance(middle, next)} : Gap{0, 0};
    return middle;
}

}  // namespace
}  // namespace khot
