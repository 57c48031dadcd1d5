// Body of gate_jacobian.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"

// Everything below is inlined for each gate, where its number is a constant.
KHOT_INLINE vec slope_of(GateKind gate, vec state) {
    if (gate == GateKind::sparse) {
        return (vec)((state > 0) & (state < 1) & (ivec)all(real(1)));
    }
    if (gate == GateKind::normal) return exponential(state * state * real(-0.5)) * real(0.3989422804014327);
    const vec distance = state < 0 ? -state : state;
    return gate == GateKind::laplace ? distance : distance * (1 - distance);
}

// A state without slope.
KHOT_INLINE real still(GateKind gate) { return gate == GateKind::normal ? real(1e18) : real(0); }

struct LaneSums {
    vec w, wg;
};

// Where w = 0 the value is chosen by a select, not by the product, since 0 · inf is NaN.
KHOT_INLINE LaneSums sums_of(GateKind gate, const real* state, const real* grad, int64_t n) {
    LaneSums s[2] = {};
    const auto add = [&](vec saved, vec g, LaneSums& to) __attribute__((always_inline)) {
        const vec w = slope_of(gate, saved);
        to.w += w;
        to.wg += w * (w == 0 ? vec{} : g);
    };
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        add(load(state + i), load(grad + i), s[0]);
        add(load(state + i + LANES), load(grad + i + LANES), s[1]);
    }
    for (; i + LANES <= n; i += LANES) add(load(state + i), load(grad + i), s[0]);
    if (i < n) add(load_tail(state + i, n - i, still(gate)), load_tail(grad + i, n - i, 0), s[0]);
    return {s[0].w + s[1].w, s[0].wg + s[1].wg};
}

KHOT_INLINE void sums(GateKind gate, const real* state, const real* grad, int64_t n, double* sum_w, double* sum_wg) {
    double total_w = 0, total_wg = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const LaneSums s = sums_of(gate, state + begin, grad + begin, n - begin < BLOCK ? n - begin : BLOCK);
        total_w += double(sum_of_lanes(s.w));
        total_wg += double(sum_of_lanes(s.wg));
    }
    *sum_w = total_w;
    *sum_wg = total_wg;
}

KHOT_INLINE void write(GateKind gate, const real* state, const real* grad, real scale, real mean, real* out,
                       int64_t n) {
    const auto product = [&](vec saved, vec g) __attribute__((always_inline)) {
        const vec w = slope_of(gate, saved);
        return w == 0 ? vec{} : (w * scale) * (g - mean);
    };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(out + i, product(load(state + i), load(grad + i)));
    if (i < n) store_tail(out + i, product(load_tail(state + i, n - i, still(gate)), load_tail(grad + i, n - i, 0)), n - i);
}

KHOT_INLINE real mean_of(GateKind gate, const real* state, const real* grad, int64_t n) {
    const Parts parts(n);
    double sum_w = 0, sum_wg = 0;
    for (int64_t p = 0; p < parts.count; ++p) {
        double part_w, part_wg;
        sums(gate, state + parts.begin(p), grad + parts.begin(p), parts.length(p), &part_w, &part_wg);
        sum_w += part_w;
        sum_wg += part_wg;
    }
    return real(weighted_mean(sum_w, sum_wg));
}

// The means of a group of short rows.
KHOT_INLINE void means_of(GateKind gate, const real* state, const real* grad, real* mean, int count, int64_t n) {
    vec lanes[2][GROUP];
    real sums[2][GROUP] = {};
    for (int r = 0; r < count; ++r) {
        const LaneSums s = sums_of(gate, state + r * n, grad + r * n, n);
        lanes[0][r] = s.w;
        lanes[1][r] = s.wg;
    }
    for (int what = 0; what < 2; ++what) sums_of_lanes(lanes[what], count, sums[what]);
    for (int r = 0; r < count; ++r) mean[r] = real(weighted_mean(double(sums[0][r]), double(sums[1][r])));
}

KHOT_INLINE void rows(GateKind gate, const real* state, const real* grad, const real* temperature,
                      int64_t temperature_stride, real* out, real* mean, int64_t rows, int64_t n) {
    const int64_t fitting = GROUP_ELEMENTS / (n + 1), size = n > SHORT ? 1 : (fitting < GROUP ? fitting : GROUP);
    for (int64_t first = 0; first < rows; first += size) {
        const int count = int(rows - first < size ? rows - first : size);
        if (size > 1) {
            means_of(gate, state + first * n, grad + first * n, mean + first, count, n);
        } else {
            mean[first] = mean_of(gate, state + first * n, grad + first * n, n);
        }
        for (int64_t r = first; r < first + count; ++r) {
            write(gate, state + r * n, grad + r * n, 1 / temperature[r * temperature_stride], mean[r], out + r * n, n);
        }
    }
}

#define KHOT_GATE(name)                                                                                          \
    static void name##_rows(const real* state, const real* grad, const real* temperature,                        \
                            int64_t temperature_stride, real* out, real* mean, int64_t count, int64_t n) {       \
        rows(GateKind::name, state, grad, temperature, temperature_stride, out, mean, count, n);                 \
    }                                                                                                            \
    static void name##_sums(const real* state, const real* grad, int64_t n, double* sum_w, double* sum_wg) {     \
        sums(GateKind::name, state, grad, n, sum_w, sum_wg);                                                     \
    }                                                                                                            \
    static void name##_write(const real* state, const real* grad, real scale, real mean, real* out, int64_t n) { \
        write(GateKind::name, state, grad, scale, mean, out, n);                                                 \
    }

KHOT_GATE(logistic)
KHOT_GATE(laplace)
KHOT_GATE(sparse)
KHOT_GATE(normal)
#undef KHOT_GATE

static const GateJacobianTables<real> gate_jacobian_tables = {{
    {logistic_rows, logistic_sums, logistic_write},
    {laplace_rows, laplace_sums, laplace_write},
    {sparse_rows, sparse_sums, sparse_write},
    {normal_rows, normal_sums, normal_write},
}};
