// Whether a mask has any lane set; after vector.inl.

KHOT_INLINE bool any(ivec mask) {
#if KHOT_BODY_AVX512
    return (KHOT_SINGLE ? int(_mm512_movepi32_mask((__m512i)mask)) : int(_mm512_movepi64_mask((__m512i)mask))) != 0;
#elif KHOT_BODY_AVX2
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#else
    bits some = 0;
    for (int lane = 0; lane < LANES; ++lane) some |= mask[lane];
    return some != 0;
#endif
}
