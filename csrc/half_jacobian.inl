// Body of half_jacobian.cpp, compiled for each instruction set and type (that of float alone is used): see dispatch.h.

#include "vector.inl"
#include "estimates.inl"
#include "powers.inl"
#include "halves.inl"

// Everything below is inlined for each type and care, where these are constants. Without care every number must turn out
// to be finite, which is the rule; with it, an entry with w = 0 takes no part and gets 0 whatever its g is.

// 2^z for z ≤ 0, within 3e-6, a hundredth of what float16 is rounded by: power_of_two() with fewer terms.
KHOT_INLINE vec power_below_one(vec z) {
    const vec c = larger(all(real(-127)), z);
    const real shift = real(12582912.0 + 127);
    const vec shifted = c + shift, s = c - (shifted - shift);
    vec p = real(0.05590642504) + real(0.009582853169) * s;
    p = real(0.2402409861) + p * s;
    p = real(0.6931241934) + p * s;
    return (1 + p * s) * (vec)((ivec)shifted << 23);
}

static const bits SIGN = bits(uint64_t(1) << (8 * sizeof(real) - 1));

// w = v/(1 + v)² with v = 2^−|z|, z = (x − anchor)·factor − shift, the shift being log₂ t: v cannot overflow, and is exactly 0
// at ±inf. The difference may overflow: then z is in the thousands, since 1/τ is not that small.
KHOT_INLINE vec slope_of(vec x, vec anchor, vec factor, vec shift) {
    const vec z = (x - anchor) * factor - shift;
    const vec v = power_below_one((vec)((ivec)z | SIGN)), sum = 1 + v;
    return v / (sum * sum);
}

struct LaneSums {
    vec w, wg;
};

// `count` numbers from i on, 2·LANES or fewer; the missing ones are `fill`.
KHOT_INLINE Pair numbers(HalfKind kind, const uint16_t* from, int64_t count, uint16_t fill) {
    if (count >= 2 * LANES) return widened(kind, from);
    uint16_t some[32];
    for (int i = 0; i < 2 * LANES; ++i) some[i] = i < count ? from[i] : fill;
    return widened(kind, some);
}

// The slopes of at most SUM_BLOCK scores into w, which has room for whole pairs, and their sums with g.
KHOT_INLINE LaneSums slopes_of_block(HalfKind kind, bool careful, const uint16_t* x, const uint16_t* g, const HalfLine& row,
                                     real* w, int64_t n) {
    const uint16_t excluded = kind == HalfKind::bfloat16 ? 0xff80 : 0xfc00;  // −inf
    const vec anchor = all(row.anchor), factor = all(row.factor), shift = all(row.shift);
    vec sum{}, with_g{};
    const auto taking_part = [&](vec slope, vec gradient) __attribute__((always_inline)) {
        return careful ? (vec)((slope != 0) & (ivec)gradient) : gradient;
    };
    const auto add = [&](int64_t i, const Pair& score, const Pair& gradient) __attribute__((always_inline)) {
        const vec first = slope_of(score.first, anchor, factor, shift), second = slope_of(score.second, anchor, factor, shift);
        store(w + i, first);
        store(w + i + LANES, second);
        sum += first + second;
        with_g += first * taking_part(first, gradient.first);
        with_g += second * taking_part(second, gradient.second);
    };
    int64_t i = 0;
    if (row.still) {
        for (; i < n; i += 2 * LANES) {
            store(w + i, vec{});
            store(w + i + LANES, vec{});
        }
        return {sum, with_g};
    }
    for (; i + 2 * LANES <= n; i += 2 * LANES) add(i, widened(kind, x + i), widened(kind, g + i));
    if (i < n) add(i, numbers(kind, x + i, n - i, excluded), numbers(kind, g + i, n - i, 0));
    return {sum, with_g};
}

// (w/τ)(g − mean).
KHOT_INLINE void products(HalfKind kind, bool careful, const real* w, const uint16_t* g, real scale, real mean, uint16_t* out,
                          int64_t n) {
    const auto product = [&](vec slope, vec gradient) __attribute__((always_inline)) {
        const vec moved = (slope * scale) * (gradient - mean);
        return careful ? (vec)((slope != 0) & (ivec)moved) : moved;
    };
    const auto pair = [&](int64_t i, const Pair& gradient) __attribute__((always_inline)) {
        return Pair{product(load(w + i), gradient.first), product(load(w + i + LANES), gradient.second)};
    };
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) store_rounded(kind, out + i, pair(i, widened(kind, g + i)), careful);
    if (i < n) {
        uint16_t some[32];
        store_rounded(kind, some, pair(i, numbers(kind, g + i, n - i, 0)), careful);
        for (int64_t j = i; j < n; ++j) out[j] = some[j - i];
    }
}

// Of part of a long row.
KHOT_INLINE SlopeSums slopes(HalfKind kind, bool careful, const uint16_t* x, const uint16_t* g, const HalfLine& row, real* w,
                             int64_t n) {
    SlopeSums total = {};
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
        const int64_t length = n - begin < SUM_BLOCK ? n - begin : SUM_BLOCK;
        const LaneSums s = slopes_of_block(kind, careful, x + begin, g + begin, row, w + begin, length);
        total.w += double(sum_of_lanes(s.w));
        total.wg += double(sum_of_lanes(s.wg));
    }
    return total;
}

// The lines of `count` rows, at most GROUP. t = 0 in a row that no score can move, NaN in one with a NaN.
static void set_lines(const real* threshold, real rate, int count, HalfLine* lines) {
    const real per_octave = real(1.4426950408889634);
    real t[GROUP], shift[GROUP];
    for (int r = 0; r < GROUP; ++r) t[r] = threshold[2 * (r < count ? r : 0) + 1];
    for (int r = 0; r < GROUP; r += LANES) {
        const vec v = load(t + r);
        store(shift + r, v == v ? logarithm(v) * per_octave : v);
    }
    for (int r = 0; r < count; ++r) lines[r] = {float(threshold[2 * r]), float(rate * per_octave), float(shift[r]), t[r] == 0};
}

// Rows of at most SUM_BLOCK scores, `count` of them, at most GROUP; `w` holds all their slopes.
KHOT_INLINE void rows(HalfKind kind, const uint16_t* x, const uint16_t* g, const HalfLine* lines, real scale, real* w,
                      uint16_t* out, int64_t n, int count) {
    const int64_t room = whole_pairs(n);
    vec lanes[2][GROUP];
    real totals[2][GROUP];
    for (int r = 0; r < count; ++r) {
        const LaneSums s = slopes_of_block(kind, false, x + r * n, g + r * n, lines[r], w + r * room, n);
        lanes[0][r] = s.w;
        lanes[1][r] = s.wg;
    }
    for (int what = 0; what < 2; ++what) sums_of_lanes(lanes[what], count, totals[what]);
    for (int r = 0; r < count; ++r) {
        SlopeSums sums = {double(totals[0][r]), double(totals[1][r])};
        if (sums.harmless()) {
            products(kind, false, w + r * room, g + r * n, scale, real(sums.mean()), out + r * n, n);
        } else {
            sums = slopes(kind, true, x + r * n, g + r * n, lines[r], w + r * room, n);
            products(kind, true, w + r * room, g + r * n, scale, real(sums.mean()), out + r * n, n);
        }
    }
}

#define KHOT_HALF(name)                                                                                               \
    static SlopeSums slopes_##name(bool careful, const uint16_t* x, const uint16_t* g, const HalfLine& row, real* w,  \
                                   int64_t n) {                                                                       \
        return careful ? slopes(HalfKind::name, true, x, g, row, w, n)                                                \
                       : slopes(HalfKind::name, false, x, g, row, w, n);                                              \
    }                                                                                                                 \
    static void products_##name(bool careful, const real* w, const uint16_t* g, real scale, real mean, uint16_t* out, \
                                int64_t n) {                                                                          \
        if (careful) {                                                                                                \
            products(HalfKind::name, true, w, g, scale, mean, out, n);                                                \
        } else {                                                                                                      \
            products(HalfKind::name, false, w, g, scale, mean, out, n);                                               \
        }                                                                                                             \
    }                                                                                                                 \
    static void rows_##name(const uint16_t* x, const uint16_t* g, const HalfLine* lines, real scale, real* w,         \
                            uint16_t* out, int64_t n, int count) {                                                    \
        rows(HalfKind::name, x, g, lines, scale, w, out, n, count);                                                   \
    }

KHOT_HALF(bfloat16)
KHOT_HALF(float16)
#undef KHOT_HALF

static const HalfJacobianTables<real> half_jacobian_tables = {
    set_lines,
    {{rows_bfloat16, slopes_bfloat16, products_bfloat16}, {rows_float16, slopes_float16, products_float16}},
};
