// Where the sure paths of the Laplace and the normal gates begin.
#pragma once

#include <cmath>

#include "kth_largest.h"
#include "rows.h"

namespace khot {
namespace {

// The zero of a row, and shifts from it that hold the root between them.
template <typename real>
struct Bracket {
    real anchor;
    double low, high;
};

// quantile(p, q) is F⁻¹(p) with q = 1 − p; `scratch` holds n reals. Excluded entries are smaller than all others, so the
// order statistics of the whole row serve; those at +inf count as 1 each.
template <typename real, typename Quantile>
Bracket<real> bracket_of(const Row<real>& row, const Census& census, real* scratch, const Quantile& quantile) {
    const double ceiling = std::ceil(row.k), floor = std::floor(row.k), allowed = double(row.n - census.excluded);
    const double surely = double(census.surely), k = row.k - surely;
    real next;
    const real upper = kth_and_next_largest(row.x, row.n, int64_t(ceiling), scratch, &next);
    Gap gap;
    const real anchor = middle_of(upper, next, floor == ceiling, row.rate, &gap);
    const double others = allowed - ceiling + 1, rest = floor - surely + 1;
    return {anchor, quantile((row.k - ceiling + 1) / others, (allowed - row.k) / others) - gap.up,
            quantile(k / rest, (rest - k) / rest) + gap.down};
}

}  // namespace
}  // namespace khot
