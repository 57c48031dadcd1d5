// Body of power_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "any.inl"
#include "blocks.inl"
#include "powers.inl"

// Half the difference is taken, which cannot overflow.
struct Scale {
    real half, twice;  // of the anchor, and the rate
};

KHOT_INLINE vec argument(vec x, Scale scale) { return (x * real(0.5) - scale.half) * scale.twice; }

// A shift in two pieces, as in threshold_topk.inl: the first cancels exactly, the second has the digits of small weights.
struct Shift {
    vec most, rest;
};

KHOT_INLINE Shift shift_of(double e) { return {all(real(e)), all(real(e - double(real(e))))}; }
KHOT_INLINE vec shifted(vec z, Shift by) { return (z + by.most) + by.rest; }

// a^(p − 1) for 0 < a ≤ 1. `whole` is p where that is 2, 3 or 4, else 0.
KHOT_INLINE vec powered(int whole, vec a, real less) {
    if (whole == 2) return a;
    if (whole == 3) return a * a;
    if (whole == 4) return a * a * a;
    return exponential(logarithm(a) * less);
}

// The list is filled up to whole vectors, with entries that are 0 at any e: the passes below have no tail to treat.
static Sides centre(real* list, int64_t n, real anchor, real rate) {
    const Scale scale = {anchor * real(0.5), rate * 2};
    for (int64_t i = n; i % LANES != 0; ++i) list[i] = -real(__builtin_inf());
    Sides total = {};
    KHOT_BLOCKS(n) {
        vec counts[LANES] = {};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec z = argument(load(list + i), scale);
            store(list + i, z);
            counts[0] += (vec)((z > -1) & (z < 0) & (ivec)all(1));
            counts[1] += (vec)((z >= 0) & (ivec)all(1));
        }
        real sums[LANES];
        sums_of_lanes(counts, 1, sums);
        total.below += int64_t(sums[0]);
        total.above += int64_t(sums[1]);
    }
    return total;
}

KHOT_INLINE PowerSums sums(int whole, const real* list, int64_t n, double e, double p) {
    const Shift shift = shift_of(e);
    const real less = real(p - 1);
    PowerSums total = {};
    KHOT_BLOCKS(n) {
        vec weights{}, slopes{}, ones{};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec a = shifted(load(list + i), shift);
            const ivec above = a >= 1, inside = (a > 0) & ~above;
            const vec base = whole == 0 ? (inside ? a : all(1)) : a;
            const vec slope = (vec)(inside & (ivec)powered(whole, base, less));
            slopes += slope;
            weights += slope * (vec)(inside & (ivec)a);  // outside, a may be infinite
            ones += (vec)(above & (ivec)all(1));
        }
        // Two at a time: LANES may be no more.
        real sums[2][LANES];
        vec first[LANES] = {weights, slopes}, second[LANES] = {ones};
        sums_of_lanes(first, 1, sums[0]);
        sums_of_lanes(second, 1, sums[1]);
        total.inside += double(sums[0][0]);
        total.slope += double(sums[0][1]);
        total.ones += double(sums[1][0]);
    }
    return total;
}

KHOT_INLINE void write(int whole, const Weights<real>& of, const real* x, real* y, real* state, int64_t n) {
    const Scale scale = {of.anchor * real(0.5), of.rate * 2};
    const Shift shift = shift_of(of.e);
    const real less = real(of.p - 1);
    for (int64_t i = 0; i < n; i += LANES) {
        const bool full = i + LANES <= n;
        const vec a = shifted(argument(full ? load(x + i) : load_tail(x + i, n - i, of.anchor), scale), shift);
        const ivec above = a >= 1, inside = (a > 0) & ~above;
        vec rounded = (vec)(above & (ivec)all(1));
        if (whole != 0 || any(inside)) {  // most vectors of a long row have none: powers that are dear are left out
            const vec base = inside ? a : all(1), weight = powered(whole, base, less) * base;
            rounded = inside ? (weight < 1 ? weight : all(1)) : rounded;
        }
        if (full) {
            store(y + i, rounded);
            if (state != nullptr) store(state + i, rounded);
        } else {
            store_tail(y + i, rounded, n - i);
            if (state != nullptr) store_tail(state + i, rounded, n - i);
        }
    }
}

#define KHOT_POWER(whole)                                                                                       \
    static PowerSums sums_##whole(const real* list, int64_t n, double e, double p) {                            \
        return sums(whole, list, n, e, p);                                                                      \
    }                                                                                                           \
    static void write_##whole(const Weights<real>& of, const real* x, real* y, real* state, int64_t n) {        \
        write(whole, of, x, y, state, n);                                                                       \
    }

KHOT_POWER(0)
KHOT_POWER(2)
KHOT_POWER(3)
KHOT_POWER(4)
#undef KHOT_POWER

static const PowerTable<real> power_table = {
    census, centre, {sums_0, nullptr, sums_2, sums_3, sums_4}, {write_0, nullptr, write_2, write_3, write_4}};
