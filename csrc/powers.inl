// Powers of numbers between 0 and 1; after vector.inl.

KHOT_INLINE vec square_root(vec a) {
#if KHOT_BODY_AVX512  // with a mask, or g++ 12 warns of what it leaves undefined itself
    return KHOT_SINGLE ? (vec)_mm512_maskz_sqrt_ps(0xffff, (__m512)a) : (vec)_mm512_maskz_sqrt_pd(0xff, (__m512d)a);
#elif KHOT_BODY_AVX2
    return KHOT_SINGLE ? (vec)_mm256_sqrt_ps((__m256)a) : (vec)_mm256_sqrt_pd((__m256d)a);
#else
    for (int lane = 0; lane < LANES; ++lane) a[lane] = real(__builtin_sqrt(a[lane]));
    return a;
#endif
}

// log a of a normal, positive a: a = 2^j · m with √½ ≤ m < √2, and log m = 2 artanh s, s = (m − 1)/(m + 1), |s| < 0.172,
// by its series: what is left out is below 3e-9 (in double 1e-18) of it. Within 3 units in the last place.
KHOT_INLINE vec logarithm(vec a) {
    const int width = KHOT_SINGLE ? 23 : 52;
    const bits root_of_half = KHOT_SINGLE ? bits(0x3f3504f3) : bits(0x3fe6a09e667f3bcd);
    const ivec j = ((ivec)a - root_of_half) >> width;
    const vec m = (vec)((ivec)a - (j << width)), f = m - 1, s = f / (2 + f), s2 = s * s;
    // Added to the bits of a large number, j becomes its last digits: the conversion of 64-bit integers is slow.
    const vec large = all(KHOT_SINGLE ? real(12582912.0) : real(6755399441055744.0));
    const vec power = (vec)((ivec)large + j) - large;
    vec p = all(KHOT_SINGLE ? real(2.0 / 9) : real(2.0 / 23));
    for (int i = KHOT_SINGLE ? 7 : 21; i >= 3; i -= 2) p = p * s2 + real(2.0) / real(i);
    const vec low = power * (KHOT_SINGLE ? real(-2.12194440e-4) : real(1.42860682030941723212e-6));
    return power * (KHOT_SINGLE ? real(0.693359375) : real(6.93145751953125e-1)) + (2 * s + (s * s2 * p + low));
}
