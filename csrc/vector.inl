// Short vectors for kernel bodies, compiled for each instruction set and type: see dispatch.h.
//
// The compiler's own vector types: `vec` is one register of `real`, arithmetic and comparisons act on all
// lanes, a comparison gives an `ivec` of 0 and −1, and `mask ? a : b` selects by lane.

typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
typedef bits ivec __attribute__((vector_size(VECTOR_BYTES)));

enum { LANES = VECTOR_BYTES / int(sizeof(real)) };

#define KHOT_INLINE static inline __attribute__((always_inline))
#define KHOT_SINGLE (sizeof(real) == 4)

KHOT_INLINE vec all(real value) { return vec{} + value; }

KHOT_INLINE vec load(const real* from) {
    vec v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

KHOT_INLINE void store(real* to, vec v) { __builtin_memcpy(to, &v, sizeof v); }

// The numbers of the lanes, from 0 on.
KHOT_INLINE ivec lane_numbers() {
    static const bits COUNT[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    ivec lane;
    __builtin_memcpy(&lane, COUNT, sizeof lane);
    return lane;
}

// The last, incomplete vector of a row, of fewer than LANES: the missing lanes are `fill`, and are neither read nor written.
KHOT_INLINE vec load_tail(const real* from, int64_t count, real fill) {
#if KHOT_BODY_AVX512
    const unsigned some = (1u << count) - 1;
    if (KHOT_SINGLE) return (vec)_mm512_mask_loadu_ps((__m512)all(fill), __mmask16(some), from);
    return (vec)_mm512_mask_loadu_pd((__m512d)all(fill), __mmask8(some), from);
#elif KHOT_BODY_AVX2
    const ivec some = lane_numbers() < bits(count);
    if (KHOT_SINGLE) return some ? (vec)_mm256_maskload_ps((const float*)from, (__m256i)some) : all(fill);
    return some ? (vec)_mm256_maskload_pd((const double*)from, (__m256i)some) : all(fill);
#else
    vec v = all(fill);
    for (int lane = 0; lane < LANES; ++lane) {
        if (lane < count) v[lane] = from[lane];
    }
    return v;
#endif
}

// The stores of AVX2 that leave lanes out take longer than these, one by one.
KHOT_INLINE void store_tail(real* to, vec v, int64_t count) {
#if KHOT_BODY_AVX512
    const unsigned some = (1u << count) - 1;
    if (KHOT_SINGLE) {
        _mm512_mask_storeu_ps(to, __mmask16(some), (__m512)v);
    } else {
        _mm512_mask_storeu_pd(to, __mmask8(some), (__m512d)v);
    }
#else
    for (int lane = 0; lane < LANES; ++lane) {
        if (lane < count) to[lane] = v[lane];
    }
#endif
}

// Lanes by their numbers.
KHOT_INLINE vec shuffled(vec v, ivec from) {
#if defined(__clang__)
    vec w;
    for (int lane = 0; lane < LANES; ++lane) w[lane] = v[from[lane]];
    return w;
#else
    return __builtin_shuffle(v, from);
#endif
}

KHOT_INLINE real sum_of_lanes(vec v) {
    real a[LANES];
    __builtin_memcpy(a, &v, sizeof v);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) a[lane] += a[lane + half];
    }
    return a[0];
}

KHOT_INLINE vec joined(vec a, vec b, bool largest) { return largest ? (a > b ? a : b) : a + b; }

// Of `size` vectors, those `step` apart: their pairs of lanes, `step` apart too, joined in the first of them.
KHOT_INLINE void join_pairs(vec* v, int size, int step, bool largest) {
    const ivec lane = lane_numbers();
    if (step >= size) {  // one vector is left, which holds all rows several times
        v[0] = joined(v[0], shuffled(v[0], lane ^ step), largest);
        return;
    }
    const ivec odd = (lane & step) != 0;
    for (int r = 0; r < size; r += 2 * step) {
        const vec a = v[r], b = v[r + step], moved = odd ? a : b;
        v[r] = joined(odd ? b : a, shuffled(moved, lane ^ step), largest);
    }
}

// The lanes of each of `size` vectors, 1, 4 or LANES, joined; to the last bit the same whatever the size.
KHOT_INLINE void join_lanes_of(const vec* v, int size, real* results, bool largest) {
    vec s[LANES];
    for (int r = 0; r < size; ++r) s[r] = v[r];
    if (LANES > 1) join_pairs(s, size, 1, largest);
    if (LANES > 2) join_pairs(s, size, 2, largest);
    if (LANES > 4) join_pairs(s, size, 4, largest);
    if (LANES > 8) join_pairs(s, size, 8, largest);
    store(results, s[0]);
}

// A transposition that joins on its way, so that many rows cost little more than one.
KHOT_INLINE void join_lanes(const vec* v, int count, real* results, bool largest) {
    for (int first = 0; first < count; first += LANES) {
        if (count - first == 1) {
            join_lanes_of(v + first, 1, results + first, largest);
        } else if (LANES > 4 && count - first <= 4) {
            join_lanes_of(v + first, 4, results + first, largest);
        } else {
            join_lanes_of(v + first, LANES, results + first, largest);
        }
    }
}

// The sum, or the largest, of the lanes of each of `count` vectors. A multiple of LANES is read and written, but of up to 4
// vectors no more than 4 are read.
KHOT_INLINE void sums_of_lanes(const vec* v, int count, real* sums) { join_lanes(v, count, sums, false); }
KHOT_INLINE void largest_of_lanes(const vec* v, int count, real* largest) { join_lanes(v, count, largest, true); }

// exp(a) = 2^j · exp(s),  j = round(a / ln 2),  s = a − j ln 2 in two pieces, |s| ≤ 0.35, a polynomial in s
// of degree 7 (13 in double; the remainder is below 4e-18), within 2 units in the last place.
//
// The rounding is the addition of a large number, whose low bits then hold j and the bias of the exponent; -ffast-math
// would break it.
// At FAR_BELOW the power of two is exactly 0, so −inf gives 0; beyond FAR_ABOVE the result stays at
// exp(FAR_ABOVE), so that a sum of two cannot overflow. NaN stays NaN.
static const real FAR_ABOVE = KHOT_SINGLE ? real(87) : real(708);
static const real FAR_BELOW = KHOT_SINGLE ? real(-88) : real(-709.09);
static const real CAPPED = KHOT_SINGLE ? real(6.07e37) : real(3.02e307);  // exp(FAR_ABOVE), rounded down

KHOT_INLINE vec exponential(vec a) {
    const vec above = all(FAR_ABOVE), below = all(FAR_BELOW);
    vec c = above < a ? above : a;
    c = below > c ? below : c;
    const real shift = KHOT_SINGLE ? real(12582912.0 + 127) : real(6755399441055744.0 + 1023);  // 1.5 · 2^23, 1.5 · 2^52
    const vec shifted = c * real(1.4426950408889634) + shift;
    const vec j = shifted - shift;
    vec s = c - j * (KHOT_SINGLE ? real(0.693359375) : real(6.93145751953125e-1));
    s = s - j * (KHOT_SINGLE ? real(-2.12194440e-4) : real(1.42860682030941723212e-6));
    const vec s2 = s * s;  // pairs of terms, not Horner's chain: half the latency
    vec p;
    if (KHOT_SINGLE) {
        const vec p01 = real(5.0000001201e-1) + real(1.6666665459e-1) * s;
        const vec p23 = real(4.1665795894e-2) + real(8.3334519073e-3) * s;
        const vec p45 = real(1.3981999507e-3) + real(1.9875691500e-4) * s;
        p = p01 + s2 * (p23 + s2 * p45);
    } else {
        const vec p01 = real(1.0 / 2) + real(1.0 / 6) * s;
        const vec p23 = real(1.0 / 24) + real(1.0 / 120) * s;
        const vec p45 = real(1.0 / 720) + real(1.0 / 5040) * s;
        const vec p67 = real(1.0 / 40320) + real(1.0 / 362880) * s;
        const vec p89 = real(1.0 / 3628800) + real(1.0 / 39916800) * s;
        const vec p1011 = real(1.0 / 479001600) + real(1.0 / 6227020800) * s;
        p = p01 + s2 * (p23 + s2 * (p45 + s2 * (p67 + s2 * (p89 + s2 * p1011))));
    }
    const vec e = 1 + (s + s2 * p);
    return e * (vec)((ivec)shifted << (KHOT_SINGLE ? 23 : 52));
}
