// Quotients and powers of two of `vec` in few instructions; after vector.inl.

// The smaller and the larger; b if one is NaN. Of a comparison and a selection the compiler makes two instructions, and of
// the AVX-512 forms without a mask, which are the same, g++ 12 makes warnings.
KHOT_INLINE vec smaller(vec a, vec b) {
#if KHOT_BODY_AVX512
    if (KHOT_SINGLE) return (vec)_mm512_maskz_min_ps(__mmask16(-1), (__m512)a, (__m512)b);
#elif KHOT_BODY_AVX2
    if (KHOT_SINGLE) return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#endif
    return a < b ? a : b;
}

KHOT_INLINE vec larger(vec a, vec b) {
#if KHOT_BODY_AVX512
    if (KHOT_SINGLE) return (vec)_mm512_maskz_max_ps(__mmask16(-1), (__m512)a, (__m512)b);
#elif KHOT_BODY_AVX2
    if (KHOT_SINGLE) return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#endif
    return a > b ? a : b;
}

// a/b, rounded to nearest but for rare ties, and never above 1 for 0 ≤ a ≤ b; neither b nor 1/b is subnormal. For loops with
// little else to do, in float with AVX-512: Newton's steps from an estimate of 1/b take a third of the time of a division.
// Where there is more, and with narrower registers, the division is the quicker, since it goes on beside everything else.
KHOT_INLINE vec quotient(vec a, vec b) {
#if KHOT_BODY_AVX512
    if (KHOT_SINGLE) {
        const vec estimate = (vec)_mm512_maskz_rcp14_ps(__mmask16(-1), (__m512)b);
        const vec inverse = estimate + estimate * (1 - b * estimate), q = a * inverse;
        return q + inverse * (a - b * q);
    }
#endif
    return a / b;
}

// 1/b within 2 units in the last place; b and 1/b are neither 0 nor subnormal. For loops with too little else to do beside a division.
KHOT_INLINE vec inverse(vec b) {
#if KHOT_BODY_AVX512
    if (KHOT_SINGLE) {
        const vec estimate = (vec)_mm512_maskz_rcp14_ps(__mmask16(-1), (__m512)b);
        return estimate + estimate * (1 - b * estimate);
    }
#elif KHOT_BODY_AVX2
    if (KHOT_SINGLE) {
        const vec estimate = (vec)_mm256_rcp_ps((__m256)b);
        return estimate + estimate * (1 - b * estimate);
    }
#endif
    return 1 / b;
}

// 2^z in float, within 1.5 units in the last place: the whole part of z, rounded to nearest by the addition of a large
// number, goes into the exponent, and a polynomial of least relative error (2e-9), 1 at 0, takes the rest. The ends are
// those of exponential(): below −126.5 exactly 0, so that nothing is subnormal, which is slow; CAPPED far above.
KHOT_INLINE vec power_of_two(vec z) {
    const vec c = larger(all(real(-127)), smaller(all(real(125.5144)), z));
    const real shift = real(12582912.0 + 127);  // 1.5 · 2^23, and the bias of the exponent
    const vec shifted = c + shift, s = c - (shifted - shift), s2 = s * s;
    const vec p12 = real(0.6931472029) + real(0.2402264791) * s;
    const vec p34 = real(0.05550332471) + real(0.009618437358) * s;
    const vec p56 = real(0.001339887445) + real(0.0001535336181) * s;
    const vec e = 1 + s * (p12 + s2 * (p34 + s2 * p56));
    return e * (vec)((ivec)shifted << 23);
}
