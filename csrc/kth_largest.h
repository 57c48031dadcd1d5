// Order statistics of one row. Serial; called from inside parallel regions.
//
// Values must not be NaN (±inf are welcome); with a NaN the answer is some value, but nothing breaks.
// x is not modified; scratch has room for n values and does not overlap x.
#pragma once

#include <cstdint>

namespace khot {

// The k-th largest of n values, 1 ≤ k ≤ n: what stands at place k − 1 after sorting from the largest down.
// Expected O(n) for every order and any ties; O(n) times the bits of a value in the worst case.
template <typename real>
real kth_largest(const real* x, int64_t n, int64_t k, real* scratch);

// Also how many values are greater than it: k − *above of those equal to it belong to the k largest.
template <typename real>
real kth_largest(const real* x, int64_t n, int64_t k, real* scratch, int64_t* above);

// The k-th largest; *next is the (k+1)-th, or the k-th again if k == n.
template <typename real>
real kth_and_next_largest(const real* x, int64_t n, int64_t k, real* scratch, real* next);

// How many values are greater than v.
template <typename real>
int64_t count_above(const real* x, int64_t n, real v);

// The values with low < x < high, in order, into out, which has room for n; returns how many. *from_high is how many are
// ≥ high.
template <typename real>
int64_t values_between(const real* x, int64_t n, real low, real high, real* out, int64_t* from_high);

}  // namespace khot
