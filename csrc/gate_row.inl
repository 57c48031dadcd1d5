// See gate_row.h.

#include "vector.inl"

KHOT_INLINE vec only(ivec where, vec v) { return (vec)(where & (ivec)v); }

// z of scores, no farther than FAR; NaN only for NaN.
KHOT_INLINE vec distance_to_anchor(const GateRow<real>& row, vec x) {
    const vec far = all(real(FAR)), z = (x * real(0.5) - row.half_anchor) * row.twice_rate;
    const vec below = z > far ? far : z;
    return below < -far ? -far : below;
}
