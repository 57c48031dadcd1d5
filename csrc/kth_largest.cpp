// The k-th largest value of a row, in one pass and a little more (after Floyd and Rivest, 1975).
//
// A small sample gives two values that most likely enclose the wanted one. One pass then counts the values
// from the upper one on and collects those strictly between; the search goes on among these few. Values
// equal to one of the two are only ever counted, so ties make it faster, not slower.
#include "kth_largest.h"

#include <cstring>
#include <limits>

#include "threads.h"

namespace khot {
namespace {

template <typename real>
struct SelectTable {
    real (*kth)(const real* x, int64_t n, int64_t k, real* scratch, int64_t* above);
    real (*kth_and_next)(const real* x, int64_t n, int64_t k, real* scratch, real* next);
    int64_t (*count_above)(const real* x, int64_t n, real v);
    int64_t (*collect_between)(const real* x, int64_t n, real low, real high, real* out, int64_t* from_high);
};

// The integer of the same size.
template <typename real>
struct IntegerOf;
template <>
struct IntegerOf<float> {
    using type = int32_t;
};
template <>
struct IntegerOf<double> {
    using type = int64_t;
};

// Up to here a row (or a sample) is solved by comparing all with all.
constexpr int SMALL = 64;
constexpr int LARGEST_SAMPLE = 1024;

// How many values are compared before they are moved, where the two cannot be one.
constexpr int64_t CHUNK = 256;

// A sample takes one value from each of its equal shares of the row, at places that look random, so that
// no period in the data meets one in the sample.
struct Jitter {
    uint16_t share[LARGEST_SAMPLE];

    constexpr Jitter() : share() {
        uint32_t state = 12345;
        for (int i = 0; i < LARGEST_SAMPLE; ++i) {
            state = state * 1664525u + 1013904223u;
            share[i] = uint16_t(state >> 16);
        }
    }
};
constexpr Jitter JITTER;

// Which lanes to move where so that those whose bit is set come first, in order.
struct Packing {
    alignas(32) uint64_t eight[256];    // 8 lanes, a byte each
    alignas(32) uint32_t four[16][8];   // 4 double lanes, as 8 halves

    constexpr Packing() : eight(), four() {
        for (int bits = 0; bits < 256; ++bits) {
            int next = 0;
            for (int lane = 0; lane < 8; ++lane) {
                if (bits >> lane & 1) eight[bits] |= uint64_t(lane) << (8 * next++);
            }
        }
        for (int bits = 0; bits < 16; ++bits) {
            int next = 0;
            for (uint32_t lane = 0; lane < 4; ++lane) {
                if (!(bits >> lane & 1)) continue;
                four[bits][next++] = 2 * lane;
                four[bits][next++] = 2 * lane + 1;
            }
        }
    }
};
constexpr Packing PACKING;

// Middle of two values in the order of the representable ones, so that halving again and again ends.
template <typename real>
inline real middle(real low, real high) {
    using integer = typename IntegerOf<real>::type;
    const integer lowest = std::numeric_limits<integer>::min();
    integer a, b;
    std::memcpy(&a, &low, sizeof a);
    std::memcpy(&b, &high, sizeof b);
    if (a < 0) a = lowest - a;  // −0 becomes 0; more negative values become more negative integers
    if (b < 0) b = lowest - b;
    integer m = integer((a >> 1) + (b >> 1) + (a & b & 1));
    if (m < 0) m = lowest - m;
    real value;
    std::memcpy(&value, &m, sizeof value);
    return value;
}

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "kth_largest.inl"
#include "dispatch.h"

namespace khot {
namespace {

const SelectTable<float>& table(float) { return KHOT_PICK(f32::select_table); }
const SelectTable<double>& table(double) { return KHOT_PICK(f64::select_table); }

}  // namespace

template <typename real>
real kth_largest(const real* x, int64_t n, int64_t k, real* scratch) {
    int64_t above;
    return table(real()).kth(x, n, k, scratch, &above);
}

template <typename real>
real kth_largest(const real* x, int64_t n, int64_t k, real* scratch, int64_t* above) {
    return table(real()).kth(x, n, k, scratch, above);
}

template <typename real>
real kth_and_next_largest(const real* x, int64_t n, int64_t k, real* scratch, real* next) {
    return table(real()).kth_and_next(x, n, k, scratch, next);
}

template <typename real>
int64_t count_above(const real* x, int64_t n, real v) {
    return table(real()).count_above(x, n, v);
}

template <typename real>
int64_t values_between(const real* x, int64_t n, real low, real high, real* out, int64_t* from_high) {
    return table(real()).collect_between(x, n, low, high, out, from_high);
}

template float kth_largest(const float*, int64_t, int64_t, float*);
template double kth_largest(const double*, int64_t, int64_t, double*);
template float kth_largest(const float*, int64_t, int64_t, float*, int64_t*);
template double kth_largest(const double*, int64_t, int64_t, double*, int64_t*);
template float kth_and_next_largest(const float*, int64_t, int64_t, float*, float*);
template double kth_and_next_largest(const double*, int64_t, int64_t, double*, double*);
template int64_t count_above(const float*, int64_t, float);
template int64_t count_above(const double*, int64_t, double);
template int64_t values_between(const float*, int64_t, float, float, float*, int64_t*);
template int64_t values_between(const double*, int64_t, double, double, double*, int64_t*);

}  // namespace khot
