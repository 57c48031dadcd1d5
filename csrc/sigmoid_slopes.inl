// Slopes of sigmoid top-k from scores and thresholds; after vector.inl and estimates.inl.

// What slope_of() multiplies half a difference by.
KHOT_INLINE real slope_factor(real rate) { return 2 * (KHOT_SINGLE ? rate * real(1.4426950408889634) : rate); }

// w = ut/(u + t)², the slope of a weight y = u/(u + t), u = exp((x − anchor)/τ). Half the difference cannot overflow;
// where u is capped the slope is 0: see sigmoid_topk.inl. NaN gives NaN.
KHOT_INLINE vec slope_of(vec x, real anchor, real t, real factor) {
    const vec z = (x * real(0.5) - anchor * real(0.5)) * factor;
    const vec u = KHOT_SINGLE ? power_of_two(z) : exponential(z), inverse = quotient(all(1), u + t);
    return u >= CAPPED ? vec{} : (u * inverse) * (t * inverse);
}
