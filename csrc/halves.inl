// Numbers of 16 bits as floats and back, one at a time, or two registers of them; after vector.inl. All of it is compiled for
// double too, and is used for float alone.

// One float16, by the exponents of a float: 112 more, the largest of which means infinity or NaN.
[[maybe_unused]] static float float_of(uint16_t half) {
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
[[maybe_unused]] static uint16_t float16_of(float value) {
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

// Two registers' worth of numbers in an order that store_rounded() undoes: of bfloat16, the upper half of a float, every other
// one in each, which takes the fewest instructions.
struct Pair {
    vec first, second;
};

KHOT_INLINE Pair widened(HalfKind kind, const uint16_t* from) {
    if (kind == HalfKind::bfloat16) {
        ivec both;
        __builtin_memcpy(&both, from, sizeof both);
        return {(vec)(both << 16), (vec)(both & ~bits(0xffff))};
    }
#if KHOT_BODY_AVX512
    return {(vec)_mm512_maskz_cvtph_ps(__mmask16(-1), _mm256_loadu_si256((const __m256i*)from)),
            (vec)_mm512_maskz_cvtph_ps(__mmask16(-1), _mm256_loadu_si256((const __m256i*)from + 1))};
#elif KHOT_BODY_AVX2
    return {(vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from)),
            (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from + 1))};
#else
    real wide[2 * LANES];
    for (int lane = 0; lane < 2 * LANES; ++lane) wide[lane] = real(float_of(from[lane]));
    return {load(wide), load(wide + LANES)};
#endif
}

// The bits of a bfloat16 in the upper half of each lane: rounded to nearest, ties to even; NaN, if there may be one, stays one.
KHOT_INLINE ivec bfloat16_of(vec v, bool maybe_nan) {
    const ivec wide = maybe_nan ? (v == v ? (ivec)v : ivec{} + 0x7fc00000) : (ivec)v;
    return wide + 0x7fff + ((wide >> 16) & 1);
}

KHOT_INLINE void store_rounded(HalfKind kind, uint16_t* to, const Pair& pair, bool maybe_nan) {
    if (kind == HalfKind::bfloat16) {
        const ivec low = (bfloat16_of(pair.first, maybe_nan) >> 16) & 0xffff;
        const ivec both = low | (bfloat16_of(pair.second, maybe_nan) & ~bits(0xffff));
        __builtin_memcpy(to, &both, sizeof both);
        return;
    }
#if KHOT_BODY_AVX512
    const int nearest = _MM_FROUND_TO_NEAREST_INT;
    _mm256_storeu_si256((__m256i*)to, _mm512_maskz_cvtps_ph(__mmask16(-1), (__m512)pair.first, nearest));
    _mm256_storeu_si256((__m256i*)to + 1, _mm512_maskz_cvtps_ph(__mmask16(-1), (__m512)pair.second, nearest));
#elif KHOT_BODY_AVX2
    _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph((__m256)pair.first, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i*)to + 1, _mm256_cvtps_ph((__m256)pair.second, _MM_FROUND_TO_NEAREST_INT));
#else
    real wide[2 * LANES];
    store(wide, pair.first);
    store(wide + LANES, pair.second);
    for (int lane = 0; lane < 2 * LANES; ++lane) to[lane] = float16_of(float(wide[lane]));
#endif
}
