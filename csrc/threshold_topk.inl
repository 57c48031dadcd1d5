// Body of threshold_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "blocks.inl"
#include "anchors.inl"

// u = exp(z), for z = (x − anchor)·rate. Half the difference is taken, which cannot overflow. Where z is too large for
// exp, u is infinite: its distance to 1 is then 0.
static void laplace_start(const real* x, real anchor, real rate, real* u, int64_t n) {
    const real half = anchor * real(0.5), twice = rate * 2;
    const auto power = [&](vec score) __attribute__((always_inline)) {
        const vec z = (score * real(0.5) - half) * twice;
        return z > FAR_ABOVE ? all(real(__builtin_inf())) : exponential(z);
    };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(u + i, power(load(x + i)));
    if (i < n) store_tail(u + i, power(load_tail(x + i, n - i, anchor)), n - i);
}

// Twice the distance of a gate to 0 below the corner, and to 1 above it: r or 1/r, with r = exp(z + e).
KHOT_INLINE vec laplace_distance(vec r, ivec above) { return above ? 1 / r : r; }

struct LaneTails {
    vec low, high, above;
};

KHOT_INLINE void add_tails(const LaneTails& block, Tails& total) {
    total.low += double(sum_of_lanes(block.low));
    total.high += double(sum_of_lanes(block.high));
    total.above += double(sum_of_lanes(block.above));
}

KHOT_INLINE void store_tails(const LaneTails* of_row, int count, GroupTails<real>& tails) {
    vec lanes[3][GROUP] = {};
    for (int i = 0; i < count; ++i) {
        lanes[0][i] = of_row[i].low;
        lanes[1][i] = of_row[i].high;
        lanes[2][i] = of_row[i].above;
    }
    sums_of_lanes(lanes[0], count, tails.low);
    sums_of_lanes(lanes[1], count, tails.high);
    sums_of_lanes(lanes[2], count, tails.above);
}

// The tails of one block, at most SUM_BLOCK long.
KHOT_INLINE LaneTails laplace_block(const real* u, real factor, int64_t n) {
    LaneTails sums = {};
    const auto add = [&](vec r) __attribute__((always_inline)) {
        const ivec above = r > 1;
        const vec distance = laplace_distance(r, above);
        sums.low += (vec)(~above & (ivec)distance);
        sums.high += (vec)(above & (ivec)distance);
        sums.above += (vec)(above & (ivec)all(real(1)));
    };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) add(load(u + i) * factor);
    if (i < n) add(load_tail(u + i, n - i, 0) * factor);
    return sums;
}

static Tails laplace_tails(const real* u, double e, int64_t n) {
    const real factor = real(__builtin_exp(e));
    Tails total = {};
    KHOT_BLOCKS(n) add_tails(laplace_block(u + begin, factor, end - begin), total);
    return total;
}

static void laplace_start_rows(const real* x, real* u, int64_t n, const int* rows, int count,
                               const Group<real>& group) {
    for (int i = 0; i < count; ++i) {
        const int r = rows[i];
        laplace_start(x + r * n, group.anchor[r], group.rate[r], u + r * n, n);
    }
}

static void laplace_tails_rows(const real* u, const double* e, int64_t n, const int* rows, int count,
                               GroupTails<real>& tails) {
    LaneTails of_row[GROUP];
    for (int i = 0; i < count; ++i) {
        of_row[i] = laplace_block(u + rows[i] * n, real(__builtin_exp(e[rows[i]])), n);
    }
    store_tails(of_row, count, tails);
}

static void laplace_write(const real* u, double e, real* y, real* state, int64_t n) {
    const vec factor = all(real(__builtin_exp(e)));
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        const vec r = (whole ? load(u + i) : load_tail(u + i, n - i, 1)) * factor;
        const ivec above = r > 1;
        const vec distance = laplace_distance(r, above) * real(0.5);
        const vec weight = above ? 1 - distance : distance, residual = above ? -distance : distance;
        if (whole) {
            store(y + i, weight);
            if (state != nullptr) store(state + i, residual);
        } else {
            store_tail(y + i, weight, n - i);
            if (state != nullptr) store_tail(state + i, residual, n - i);
        }
    }
}

// z, kept within ±10⁴: beyond, a gate is 0 or 1.
static void sparse_start(const real* x, real anchor, real rate, real* u, int64_t n) {
    const real half = anchor * real(0.5), twice = rate * 2;
    const vec far = all(real(1e4));
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        vec z = ((whole ? load(x + i) : load_tail(x + i, n - i, anchor)) * real(0.5) - half) * twice;
        z = z > far ? far : z;
        z = z < -far ? -far : z;
        if (whole) {
            store(u + i, z);
        } else {
            store_tail(u + i, z, n - i);
        }
    }
}

// A shift in two pieces. Many small weights may differ little from one large shift, of which one real has too few
// digits for their sum: the first piece cancels exactly, the second has the digits.
struct Shift {
    vec most, rest;
};

KHOT_INLINE Shift shift_of(double e) { return {all(real(e)), all(real(e - double(real(e))))}; }
KHOT_INLINE vec shifted(vec z, Shift by) { return (z + by.most) + by.rest; }

KHOT_INLINE LaneTails sparse_block(const real* u, double e, int64_t n) {
    const Shift shift = shift_of(e);
    LaneTails sums = {};
    for (int64_t i = 0; i < n; i += LANES) {
        const vec a = shifted(i + LANES <= n ? load(u + i) : load_tail(u + i, n - i, -real(1e6)), shift);
        const ivec above = a >= 1, inside = (a > 0) & ~above;
        sums.low += (vec)(inside & (ivec)a);
        sums.high += (vec)(inside & (ivec)all(real(1)));
        sums.above += (vec)(above & (ivec)all(real(1)));
    }
    return sums;
}

static Tails sparse_tails(const real* u, double e, int64_t n) {
    Tails total = {};
    KHOT_BLOCKS(n) add_tails(sparse_block(u + begin, e, end - begin), total);
    return total;
}

static void sparse_start_rows(const real* x, real* u, int64_t n, const int* rows, int count,
                              const Group<real>& group) {
    for (int i = 0; i < count; ++i) {
        const int r = rows[i];
        sparse_start(x + r * n, group.anchor[r], group.rate[r], u + r * n, n);
    }
}

static void sparse_tails_rows(const real* u, const double* e, int64_t n, const int* rows, int count,
                              GroupTails<real>& tails) {
    LaneTails of_row[GROUP];
    for (int i = 0; i < count; ++i) of_row[i] = sparse_block(u + rows[i] * n, e[rows[i]], n);
    store_tails(of_row, count, tails);
}

static void sparse_write(const real* u, double e, real* y, real* state, int64_t n) {
    const Shift shift = shift_of(e);
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        const vec a = shifted(whole ? load(u + i) : load_tail(u + i, n - i, 0), shift);
        const vec positive = a > 0 ? a : vec{}, weight = positive < 1 ? positive : all(real(1));
        if (whole) {
            store(y + i, weight);
            if (state != nullptr) store(state + i, weight);
        } else {
            store_tail(y + i, weight, n - i);
            if (state != nullptr) store_tail(state + i, weight, n - i);
        }
    }
}

static const ThresholdTable<real> threshold_table = {
    census,
    gaussian_anchors,
    {laplace_start, laplace_tails, laplace_write, laplace_start_rows, laplace_tails_rows},
    {sparse_start, sparse_tails, sparse_write, sparse_start_rows, sparse_tails_rows},
};
