// Body of sparse_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "any.inl"
#include "blocks.inl"
#include "powers.inl"
#include "anchors.inl"

// Half the difference is taken, which cannot overflow.
struct Scale {
    real half, twice;  // of the anchor, and the rate
};

KHOT_INLINE vec argument(vec x, Scale scale) { return (x * real(0.5) - scale.half) * scale.twice; }

// A shift in two pieces. Many small weights may differ little from one large shift, of which one real has too few digits
// for their sum: the first piece cancels exactly, the second has the digits.
struct Shift {
    vec most, rest;
};

KHOT_INLINE Shift shift_of(double e) { return {all(real(e)), all(real(e - double(real(e))))}; }
KHOT_INLINE vec shifted(vec z, Shift by) { return (z + by.most) + by.rest; }

// a^(p − 1) for 0 < a ≤ 1. `whole` is p where that is 1, 2, 3 or 4, else 0.
KHOT_INLINE vec powered(int whole, vec a, real less) {
    if (whole == 1) return all(1);
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
        sums_of_lanes(counts, 2, sums);
        total.below += int64_t(sums[0]);
        total.above += int64_t(sums[1]);
    }
    return total;
}

struct LaneSums {
    vec inside, slope, ones;
};

KHOT_INLINE void add_entries(int whole, vec z, Shift shift, real less, LaneSums& sums) {
    const vec a = shifted(z, shift);
    const ivec above = a >= 1, inside = ~((a <= 0) | above);  // with NaN, which then is in the sums: it may not have been sampled
    const vec base = whole == 0 ? (inside ? a : all(1)) : a;
    const vec slope = (vec)(inside & (ivec)powered(whole, base, less)), within = (vec)(inside & (ivec)a);
    sums.slope += slope;
    sums.inside += whole == 1 ? within : slope * within;  // outside, a may be infinite
    sums.ones += (vec)(above & (ivec)all(1));
}

KHOT_INLINE PowerSums sums(int whole, const real* list, int64_t n, double e, double p) {
    const Shift shift = shift_of(e);
    const real less = real(p - 1);
    PowerSums total = {};
    KHOT_BLOCKS(n) {
        LaneSums lanes = {};
        for (int64_t i = begin; i < end; i += LANES) add_entries(whole, load(list + i), shift, less, lanes);
        // Two at a time: LANES may be no more.
        real sums[2][LANES];
        vec first[LANES] = {lanes.inside, lanes.slope}, second[LANES] = {lanes.ones};
        sums_of_lanes(first, 2, sums[0]);
        sums_of_lanes(second, 1, sums[1]);
        total.inside += double(sums[0][0]);
        total.slope += double(sums[0][1]);
        total.ones += double(sums[1][0]);
    }
    return total;
}

// The sums of the listed rows, each at most SUM_BLOCK long, at their e.
KHOT_INLINE void sums_rows(int whole, const real* x, int64_t n, const int* rows, int count, double p,
                           SparseGroup<real>& group) {
    vec lanes[3][GROUP];
    real sums[3][GROUP];
    const real less = real(p - 1);
    for (int b = 0; b < count; ++b) {
        const int r = rows[b];
        const real* row = x + r * n;
        const Scale scale = {group.anchor[r] * real(0.5), group.rate[r] * 2};
        const Shift shift = shift_of(group.e[r]);
        LaneSums of_row = {};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            fetch_ahead(row + i);
            add_entries(whole, argument(load(row + i), scale), shift, less, of_row);
        }
        if (i < n) {
            const vec rest = load_tail(row + i, n - i, -real(__builtin_inf()));
            add_entries(whole, argument(rest, scale), shift, less, of_row);
        }
        lanes[0][b] = of_row.inside;
        lanes[1][b] = of_row.slope;
        lanes[2][b] = of_row.ones;
    }
    for (int what = 0; what < 3; ++what) sums_of_lanes(lanes[what], count, sums[what]);
    for (int b = 0; b < count; ++b) {
        group.inside[rows[b]] = double(sums[0][b]);
        group.slope[rows[b]] = double(sums[1][b]);
        group.ones[rows[b]] = double(sums[2][b]);
    }
}

// One step of Newton's method on the p-norm in each row: see sparse_topk.cpp.
KHOT_INLINE void step_rows(int whole, double p, SparseGroup<real>& group) {
    const double close = KHOT_SINGLE ? 1e-4 : 1e-8, rounding = KHOT_SINGLE ? 2.5e-7 : 4e-16;
    double ratio[GROUP];
    for (int r = 0; r < GROUP; ++r) ratio[r] = (group.k[r] - group.ones[r]) / group.inside[r];
    if (whole == 2) {
        for (int r = 0; r < GROUP; ++r) ratio[r] = __builtin_sqrt(ratio[r]);
    } else if (whole != 1) {
        for (int r = 0; r < GROUP; ++r) {
            if (ratio[r] != 1) ratio[r] = __builtin_pow(ratio[r], 1 / p);  // it is 1 in rows that are done
        }
    }
#pragma omp simd
    for (int r = 0; r < GROUP; ++r) {
        const double relative = ratio[r] - 1, size = relative < 0 ? -relative : relative, e = group.e[r];
        group.least[r] = relative > 0 ? e : group.least[r];
        group.most[r] = relative < 0 ? e : group.most[r];
        const double next = e + group.inside[r] / group.slope[r] * relative;
        const bool inside = next > group.least[r] && next < group.most[r];  // NaN is not
        // With as many entries in each piece as before these are the same ones, and for p = 1 the last step was exact.
        const bool same = group.ones[r] == group.last_ones[r];
        const bool exact = whole == 1 ? same && group.slope[r] == group.last_slope[r]
                                      : size <= rounding || (same && size <= close && group.last_size[r] <= close);
        group.last_ones[r] = group.ones[r];
        group.last_slope[r] = group.slope[r];
        group.last_size[r] = size;
        group.e[r] = next;
        // Where all inside are nearly 1, they may be all there are, and exactly 1: the sure path knows.
        const bool below = group.inside[r] < group.slope[r] * (1 - 2 * close);
        group.outcome[r] = exact && size <= close ? (below ? FOUND : LOST) : (inside ? OPEN : LOST);
    }
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
    static void sums_rows_##whole(const real* x, int64_t n, const int* rows, int count, double p,               \
                                  SparseGroup<real>& group) {                                                   \
        sums_rows(whole, x, n, rows, count, p, group);                                                          \
    }                                                                                                           \
    static void step_rows_##whole(double p, SparseGroup<real>& group) { step_rows(whole, p, group); }           \
    static void write_##whole(const Weights<real>& of, const real* x, real* y, real* state, int64_t n) {        \
        write(whole, of, x, y, state, n);                                                                       \
    }

KHOT_POWER(0)
KHOT_POWER(1)
KHOT_POWER(2)
KHOT_POWER(3)
KHOT_POWER(4)
#undef KHOT_POWER

static const SparseTable<real> sparse_table = {
    census,
    centre,
    gaussian_anchors,
    {sums_0, sums_1, sums_2, sums_3, sums_4},
    {write_0, write_1, write_2, write_3, write_4},
    {sums_rows_0, sums_rows_1, sums_rows_2, sums_rows_3, sums_rows_4},
    {step_rows_0, step_rows_1, step_rows_2, step_rows_3, step_rows_4},
};
