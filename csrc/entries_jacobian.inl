// Body of entries_jacobian.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "estimates.inl"
#include "sigmoid_slopes.inl"

static double slopes(const real* x, const unsigned char* mask, real anchor, real t, real rate, real* w, int64_t n) {
    if (t == 0) {  // no score can move a weight of this row
        for (int64_t i = 0; i < n; ++i) w[i] = 0;
        return 0;
    }
    const real factor = slope_factor(rate);
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
        const int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;
        vec sum{};
        for (int64_t i = begin; i < end; i += LANES) {
            const bool whole = i + LANES <= end;
            const vec v = whole ? load(x + i) : load_tail(x + i, end - i, -real(__builtin_inf()));
            vec slope = slope_of(v, anchor, t, factor);
            if (mask != nullptr) {
                for (int lane = 0; lane < LANES && i + lane < end; ++lane) slope[lane] = mask[i + lane] ? slope[lane] : 0;
            }
            sum += slope;
            if (whole) {
                store(w + i, slope);
            } else {
                store_tail(w + i, slope, end - i);
            }
        }
        total += double(sum_of_lanes(sum));
    }
    return total;
}

static const EntriesJacobianTable<real> entries_jacobian_table = {slopes};
