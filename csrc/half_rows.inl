// Body of half_rows.cpp, compiled for each instruction set and type (that of float alone is used): see dispatch.h.

#include "vector.inl"
#include "estimates.inl"
#include "sigmoid_slopes.inl"

// bfloat16 is the upper half of a float.
static void from_bfloat16(const uint16_t* from, real* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t wide = uint32_t(from[i]) << 16;
        float value;
        __builtin_memcpy(&value, &wide, sizeof wide);
        to[i] = real(value);
    }
}

// Rounded to nearest, ties to even; NaN stays one.
static void to_bfloat16(const real* from, uint16_t* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const float value = float(from[i]);
        uint32_t wide;
        __builtin_memcpy(&wide, &value, sizeof wide);
        const uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
        to[i] = uint16_t((wide & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
    }
}

// One float16, by the exponents of a float: 112 more, the largest of which means infinity or NaN.
static float float_of(uint16_t half) {
    const uint32_t size = uint32_t(half & 0x7fff) << 13, sign = uint32_t(half & 0x8000) << 16;
    float value;
    __builtin_memcpy(&value, &size, sizeof value);
    value *= 0x1p112f;
    uint32_t wide;
    __builtin_memcpy(&wide, &value, sizeof wide);
    wide |= (size >= 0x0f800000 ? 0x7f800000 : 0) | sign;
    __builtin_memcpy(&value, &wide, sizeof value);
    return value;
}

// Rounded to nearest, ties to even; where the result is subnormal, the addition of a half does the rounding.
static uint16_t float16_of(float value) {
    uint32_t wide;
    __builtin_memcpy(&wide, &value, sizeof wide);
    const uint16_t sign = uint16_t((wide >> 16) & 0x8000);
    wide &= 0x7fffffff;
    if (wide > 0x7f800000) return sign | 0x7e00;
    if (wide >= 0x477ff000) return sign | 0x7c00;  // 65520 and more
    if (wide < 0x38800000) {                       // subnormal: the last place is 2^−24
        float size;
        __builtin_memcpy(&size, &wide, sizeof size);
        size += 0.5f;
        __builtin_memcpy(&wide, &size, sizeof wide);
        return sign | uint16_t(wide - 0x3f000000);
    }
    return sign | uint16_t((wide - 0x38000000 + 0xfff + ((wide >> 13) & 1)) >> 13);
}

static void from_float16(const uint16_t* from, real* to, int64_t n) {
    int64_t i = 0;
#if KHOT_BODY_AVX2
    for (; KHOT_SINGLE && i + 8 <= n; i += 8) {
        _mm256_storeu_ps((float*)(to + i), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(from + i))));
    }
#endif
    for (; i < n; ++i) to[i] = real(float_of(from[i]));
}

static void to_float16(const real* from, uint16_t* to, int64_t n) {
    int64_t i = 0;
#if KHOT_BODY_AVX2
    for (; KHOT_SINGLE && i + 8 <= n; i += 8) {
        const __m256 value = _mm256_loadu_ps((const float*)(from + i));
        _mm_storeu_si128((__m128i*)(to + i), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; ++i) to[i] = float16_of(float(from[i]));
}

static SlopeSums slopes(real* x, const real* g, real anchor, real t, real rate, int64_t n) {
    SlopeSums total = {};
    if (t == 0) {  // no score can move a weight of this row
        for (int64_t i = 0; i < n; ++i) x[i] = 0;
        return total;
    }
    const real factor = slope_factor(rate);
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
        const int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;
        vec sum{}, with_g{};
        for (int64_t i = begin; i < end; i += LANES) {
            const bool whole = i + LANES <= end;
            const vec v = whole ? load(x + i) : load_tail(x + i, end - i, -real(__builtin_inf()));
            const vec gradient = whole ? load(g + i) : load_tail(g + i, end - i, 0);
            const vec w = slope_of(v, anchor, t, factor);
            sum += w;
            with_g += w * (w == 0 ? vec{} : gradient);
            if (whole) {
                store(x + i, w);
            } else {
                store_tail(x + i, w, end - i);
            }
        }
        total.w += double(sum_of_lanes(sum));
        total.wg += double(sum_of_lanes(with_g));
    }
    return total;
}

static void product(real* w, const real* g, real scale, real mean, int64_t n) {
    for (int64_t i = 0; i < n; ++i) w[i] = w[i] == 0 ? 0 : (w[i] * scale) * (g[i] - mean);
}

static const HalfTable<real> half_table = {{from_bfloat16, from_float16}, {to_bfloat16, to_float16}, slopes, product};
