// Body of laplace_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "any.inl"
#include "blocks.inl"
#include "estimates.inl"
#include "anchors.inl"

KHOT_INLINE ivec sign_bit() { return ivec{} + (KHOT_SINGLE ? bits(INT32_MIN) : bits(INT64_MIN)); }

struct LaneTails {
    vec low, high, above, nearest;
};

// exp(−|z|).
KHOT_INLINE vec distance_of(vec z) {
    const vec minus = (vec)((ivec)z | sign_bit());
    return KHOT_SINGLE ? power_of_two(minus) : exponential(minus);
}

// With the side of the corner as its sign, −0 too: above is negative.
KHOT_INLINE vec signed_distance(vec distance, ivec above) { return (vec)((ivec)distance | (above & sign_bit())); }

KHOT_INLINE void add_distance(vec distance, ivec above, LaneTails& sums) {
    sums.low += (vec)(~above & (ivec)distance);
    sums.high += (vec)(above & (ivec)distance);
    sums.above += (vec)(above & (ivec)all(real(1)));
    sums.nearest = larger(sums.nearest, distance);
}

// The distances of at most SUM_BLOCK entries, z = (x − anchor)·rate, and their tails. The difference comes before the
// product, so that scores with a large common offset lose nothing. Where it overflows, a gate is 0 or 1.
KHOT_INLINE LaneTails start_block(const real* x, real anchor, real rate, real* w, int64_t n) {
    const real by = KHOT_SINGLE ? rate * real(1.4426950408889634) : rate;
    LaneTails sums = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        fetch_ahead(x + i);
        const vec z = (load(x + i) - anchor) * by, distance = distance_of(z);
        store(w + i, signed_distance(distance, z > 0));
        add_distance(distance, z > 0, sums);
    }
    if (i < n) {
        const vec z = (load_tail(x + i, n - i, -real(__builtin_inf())) - anchor) * by, distance = distance_of(z);
        store_tail(w + i, signed_distance(distance, z > 0), n - i);
        add_distance(distance, z > 0, sums);
    }
    return sums;
}

// The distance at another corner, and the side of it. In a long row the few entries between the two are worth a branch; in a
// short one it would be taken too often to be foreseen.
KHOT_INLINE vec moved(vec w, const Corner<real>& corner, bool rarely_crossed, ivec* above) {
    *above = (ivec)w < 0;
    const vec distance = (vec)((ivec)w & ~sign_bit()) * (*above ? all(corner.down) : all(corner.up));
    const ivec crossed = distance > 1;
    if (rarely_crossed && __builtin_expect(!any(crossed), 1)) return distance;
    *above ^= crossed;
    return crossed ? inverse(distance) : distance;
}

KHOT_INLINE LaneTails tails_block(const real* w, const Corner<real>& corner, bool rarely_crossed, int64_t n) {
    LaneTails sums = {};
    ivec above;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec distance = moved(load(w + i), corner, rarely_crossed, &above);
        add_distance(distance, above, sums);
    }
    if (i < n) {
        const vec distance = moved(load_tail(w + i, n - i, 0), corner, rarely_crossed, &above);
        add_distance(distance, above, sums);
    }
    return sums;
}

KHOT_INLINE void add_tails(const LaneTails& block, Tails& total) {
    total.low += double(sum_of_lanes(block.low));
    total.high += double(sum_of_lanes(block.high));
    total.above += double(sum_of_lanes(block.above));
    real nearest[LANES];
    largest_of_lanes(&block.nearest, 1, nearest);
    total.nearest = double(nearest[0]) > total.nearest ? double(nearest[0]) : total.nearest;
}

static Tails start(const real* x, real anchor, real rate, real* w, int64_t n) {
    Tails total = {};
    KHOT_BLOCKS(n) add_tails(start_block(x + begin, anchor, rate, w + begin, end - begin), total);
    return total;
}

static Tails tails(const real* w, const Corner<real>& corner, int64_t n) {
    Tails total = {};
    KHOT_BLOCKS(n) add_tails(tails_block(w + begin, corner, true, end - begin), total);
    return total;
}

static void tails_rows(const real* x, real* w, int64_t n, const int* rows, int count, bool first,
                       LaplaceGroup<real>& group) {
    vec lanes[4][GROUP];
    real sums[3][GROUP], nearest[GROUP];
    for (int i = 0; i < count; ++i) {
        const int r = rows[i];
        const Corner<real> corner(group.up[r]);
        const LaneTails of_row = first ? start_block(x + r * n, group.anchor[r], group.rate[r], w + r * n, n)
                                 : n > OFTEN_CROSSED ? tails_block(w + r * n, corner, true, n)
                                                     : tails_block(w + r * n, corner, false, n);
        lanes[0][i] = of_row.low;
        lanes[1][i] = of_row.high;
        lanes[2][i] = of_row.above;
        lanes[3][i] = of_row.nearest;
    }
    for (int what = 0; what < 3; ++what) sums_of_lanes(lanes[what], count, sums[what]);
    largest_of_lanes(lanes[3], count, nearest);
    for (int i = 0; i < count; ++i) {
        group.set_tails(rows[i], {double(sums[0][i]), double(sums[1][i]), double(sums[2][i]), double(nearest[i])});
    }
}

// The root of the piece that each row is in, from its tails: see laplace_topk.cpp. It is that of the row if no entry changes
// its side on the way; one that does is wrong by at most half the square of the step.
static void step(double n, LaplaceGroup<real>& group) {
    const double exact = (KHOT_SINGLE ? 1e-7 : 1e-16) / n;
#pragma omp simd
    for (int r = 0; r < GROUP; ++r) {
        const double low = group.low[r], high = group.high[r], d = group.k[r] - group.above[r], up = group.up[r];
        const double root = __builtin_sqrt(d * d + low * high);
        const double factor = (d > 0 ? d + root : high) / (d > 0 ? low : root - d), next = up * factor;
        const bool too_low = d > (low - high) * 0.5;
        group.least[r] = too_low ? up : group.least[r];
        group.most[r] = too_low ? group.most[r] : up;
        const bool inside = next > group.least[r] && next < group.most[r];  // NaN is not
        const bool nobody_crosses = group.nearest[r] * factor <= 1 && group.nearest[r] <= factor;
        const bool done = (factor - 1) * (factor - 1) <= exact * (low + high) || (inside && nobody_crosses);
        group.up[r] = next;
        group.outcome[r] = done ? FOUND : (inside ? OPEN : LOST);
    }
}

KHOT_INLINE void write_with(const real* w, const Corner<real>& corner, bool rarely_crossed, real* y, real* state, int64_t n) {
    const auto entries = [&](vec v, vec* weight) __attribute__((always_inline)) {
        ivec above;
        const vec distance = moved(v, corner, rarely_crossed, &above) * real(0.5);
        *weight = above ? 1 - distance : distance;
        return signed_distance(distance, above);
    };
    vec weight;
    int64_t i = 0;
    if (state == nullptr) {
        for (; i + LANES <= n; i += LANES) {
            entries(load(w + i), &weight);
            store(y + i, weight);
        }
    } else {
        for (; i + LANES <= n; i += LANES) {
            store(state + i, entries(load(w + i), &weight));
            store(y + i, weight);
        }
    }
    if (i < n) {
        const vec residual = entries(load_tail(w + i, n - i, 0), &weight);
        store_tail(y + i, weight, n - i);
        if (state != nullptr) store_tail(state + i, residual, n - i);
    }
}

static void write(const real* w, const Corner<real>& corner, real* y, real* state, int64_t n) {
    if (n > OFTEN_CROSSED) {
        write_with(w, corner, true, y, state, n);
    } else {
        write_with(w, corner, false, y, state, n);
    }
}

static const LaplaceTable<real> laplace_table = {census, gaussian_anchors, start, tails, tails_rows, step, write};
