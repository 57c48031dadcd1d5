// The entries of a row from a low value to a high one: how many there are, and how many above; and which they are.
// See khot/parallel/_order_statistic.py.
#include <cstdint>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

template <typename real>
struct BetweenTable {
    void (*count)(const real* x, real low, real high, int64_t n, int64_t* above, int64_t* between);
    void (*collect)(const real* x, real low, real high, int64_t n, real* out);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "between.inl"
#include "dispatch.h"

namespace khot {
namespace {

const BetweenTable<float>& table(float) { return KHOT_PICK(f32::between_table); }
const BetweenTable<double>& table(double) { return KHOT_PICK(f64::between_table); }

}  // namespace

template <typename real>
void count_between(const real* x, const real* low, const real* high, int64_t* above, int64_t* between, int64_t rows,
                   int64_t n, int threads) {
    const BetweenTable<real>& loops = table(real());
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            loops.count(x + row * n, low[row], high[row], n, above + row, between + row);
        }
    });
}

template <typename real>
void collect_between(const real* x, const real* low, const real* high, const int64_t* starts, real* out, int64_t rows,
                     int64_t n, int threads) {
    const BetweenTable<real>& loops = table(real());
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            loops.collect(x + row * n, low[row], high[row], n, out + starts[row]);
        }
    });
}

#define KHOT_BETWEEN(real)                                                                                             \
    template void count_between(const real*, const real*, const real*, int64_t*, int64_t*, int64_t, int64_t, int);     \
    template void collect_between(const real*, const real*, const real*, const int64_t*, real*, int64_t, int64_t, int);
KHOT_BETWEEN(float)
KHOT_BETWEEN(double)

}  // namespace khot
