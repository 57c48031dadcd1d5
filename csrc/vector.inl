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

// The last, incomplete vector of a row: the missing lanes are `fill`, and are not written.
KHOT_INLINE vec load_tail(const real* from, int64_t count, real fill) {
    vec v = all(fill);
    for (int lane = 0; lane < LANES; ++lane) {
        if (lane < count) v[lane] = from[lane];
    }
    return v;
}

KHOT_INLINE void store_tail(real* to, vec v, int64_t count) {
    for (int lane = 0; lane < LANES; ++lane) {
        if (lane < count) to[lane] = v[lane];
    }
}

// Lanes of a and of b by their numbers, those of b from LANES on.
KHOT_INLINE vec shuffled(vec a, vec b, ivec from) {
#if defined(__clang__)
    vec v;
    for (int lane = 0; lane < LANES; ++lane) v[lane] = from[lane] < LANES ? a[from[lane]] : b[from[lane] - LANES];
    return v;
#else
    return __builtin_shuffle(a, b, from);
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

// Of LANES vectors, those `step` apart: the sums of their pairs of lanes, `step` apart too, in the first of them.
KHOT_INLINE void add_pairs(vec* v, int step) {
    static const bits COUNT[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    ivec lane;
    __builtin_memcpy(&lane, COUNT, sizeof lane);
    const ivec first = (lane & step) != 0 ? lane + (LANES - step) : lane;  // from the second vector: + LANES
    for (int r = 0; r < LANES; r += 2 * step) {
        const vec a = v[r], b = v[r + step];
        v[r] = shuffled(a, b, first) + shuffled(a, b, first + step);
    }
}

// The sum of the lanes of each of `count` vectors (a multiple of LANES is read and written): a transposition that
// adds on its way, so that many rows cost little more than one.
KHOT_INLINE void sums_of_lanes(const vec* v, int count, real* sums) {
    for (int first = 0; first < count; first += LANES) {
        vec s[LANES];
        for (int r = 0; r < LANES; ++r) s[r] = v[first + r];
        if (LANES > 1) add_pairs(s, 1);
        if (LANES > 2) add_pairs(s, 2);
        if (LANES > 4) add_pairs(s, 4);
        if (LANES > 8) add_pairs(s, 8);
        store(sums + first, s[0]);
    }
}

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
