// Groups of rows, for which what is done once per row is done for many at a time, and where a search in them starts.
#pragma once

#include <cmath>
#include <cstdint>

#include "rows.h"

namespace khot {
namespace {

// The start is estimated from at most this many elements of a row, in pieces spread over it.
constexpr int64_t SAMPLE = 256, SAMPLE_PIECE = 16;

// Beyond this standard deviation, in units of τ, an estimate from moments is too rough to start from.
constexpr double WIDE = 6;

// The same for scores clipped to ±WIDE, half of it: in a row that really is wide, most of them are.
constexpr double CLIPPED_WIDE = 4;

// Two points with the threshold between them are near enough to it when they are nearer to each other than this.
constexpr double ENCLOSED = 6;

// Up to this length, a second look at a row that seems wide costs less than a selection.
constexpr int64_t ROUGH = 256;

// Short rows are searched for in groups of so many rows and about so many elements.
constexpr int GROUP = 16;
constexpr int64_t GROUP_ELEMENTS = 4096;

template <typename real>
struct Group {
    double k[GROUP];
    real rate[GROUP];                // 1/τ
    real logit[GROUP], tilt[GROUP];  // of k/n, and tanh of half of it
    int ordinary[GROUP];             // 1: worth trying; where a score times the rate cannot be wrong but by overflow
    double middle[GROUP];            // of the bracket of the shift, from the ⌈k⌉-th largest score on
    real quantile[GROUP];            // of a standard normal distribution, above which lies the share k/n of it
    real density[GROUP];             // n times that of the distribution there
    real anchor[GROUP];
    real mean[GROUP], spread[GROUP];  // of (a sample of) the row, and its standard deviation
    int wide[GROUP];                 // 1: too wide for an anchor from moments alone
    int open[GROUP];                 // 1: not found
};

// Above this lies the share p of a standard normal distribution, within 5e-4 (Abramowitz & Stegun, 26.2.23).
inline double upper_quantile(double p) {
    const double tail = p < 0.5 ? p : 1 - p, s = std::sqrt(-2 * std::log(tail));
    const double q = s - (2.515517 + s * (0.802853 + s * 0.010328)) / (1 + s * (1.432788 + s * (0.189269 + s * 0.001308)));
    return p < 0.5 ? q : -q;
}

// How many rows of n elements make a group.
inline int group_size(int64_t n) {
    const int64_t fitting = GROUP_ELEMENTS / n;
    return int(fitting < 1 ? 1 : (fitting > GROUP ? GROUP : fitting));
}

// The budgets and temperatures of the group that starts at row `first`; those past the last row are copies.
// Where all rows have the same, which is the rule, once is enough.
template <typename real>
void set_group(const Rows<real>& rows, int64_t first, int count, Group<real>& group) {
    for (int r = 0; r < GROUP; ++r) {
        const int64_t row = first + (r < count ? r : 0);
        const double k = rows.k[row * rows.k_stride];
        const real rate = rate_of(rows.temperature[row * rows.temperature_stride]);
        const bool ordinary = k > 0 && k < double(rows.n) && rate > real(1e-30);
        group.k[r] = k;
        group.rate[r] = rate;
        group.ordinary[r] = ordinary ? 1 : 0;
        if (r > 0 && k == group.k[r - 1] && group.ordinary[r] == group.ordinary[r - 1]) {  // spares the logarithms
            group.logit[r] = group.logit[r - 1];
            group.tilt[r] = group.tilt[r - 1];
            group.quantile[r] = group.quantile[r - 1];
            group.density[r] = group.density[r - 1];
            group.middle[r] = group.middle[r - 1];
            continue;
        }
        group.logit[r] = group.tilt[r] = 0;
        group.middle[r] = 0;
        group.quantile[r] = group.density[r] = 0;
        if (!ordinary) continue;
        const double n = double(rows.n);
        group.logit[r] = real(std::log(k / (n - k)));
        group.tilt[r] = real(2 * k / n - 1);
        const double quantile = upper_quantile(k / n);
        group.quantile[r] = real(quantile);
        group.density[r] = real(n * 0.3989422804 * std::exp(-0.5 * quantile * quantile));
        group.middle[r] = std::log((k - (std::ceil(k) - 1)) / (n - k) * k / (std::floor(k) + 1 - k)) / 2;
    }
}

}  // namespace
}  // namespace khot
