// Body of half_rows.cpp, compiled for each instruction set and type (that of float alone is used): see dispatch.h.

#include "vector.inl"
#include "halves.inl"

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

static const HalfTable<real> half_table = {{from_bfloat16, from_float16}, {to_bfloat16, to_float16}};
