// Body of gate_shards.cpp, compiled for each instruction set and type: see dispatch.h.

#include "gate_row.inl"

KHOT_INLINE vec weight(GateKind gate, vec a) {
    if (gate == GateKind::sparse) {
        const vec zero{}, one = all(1), low = a > 0 ? a : zero;
        return low < 1 ? low : one;
    }
    const ivec up = a > 0;
    const vec e = exponential(up ? -a : a);
    if (gate == GateKind::laplace) return up ? 1 - e * real(0.5) : e * real(0.5);
    return (up ? all(1) : e) / (1 + e);
}

// F′ of finite scores.
KHOT_INLINE vec slope(GateKind gate, vec x, vec a) {
    const ivec finite = x - x == 0;
    if (gate == GateKind::sparse) return only(finite & (a > 0) & (a < 1), all(1));
    const vec e = exponential(a > 0 ? -a : a);
    if (gate == GateKind::laplace) return only(finite, e * real(0.5));
    const vec inverse = 1 / (1 + e);
    return only(finite, (e * inverse) * inverse);
}

KHOT_INLINE void weights(GateKind gate, const GateRow<real>& row, const real* x, real* y, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        store(y + i, weight(gate, distance_to_anchor(row, load(x + i)) + row.offset - row.fine));
    }
    if (i == n) return;
    const vec z = distance_to_anchor(row, load_tail(x + i, n - i, 0));
    store_tail(y + i, weight(gate, z + row.offset - row.fine), n - i);
}

KHOT_INLINE void add(GateKind gate, const GateRow<real>& row, vec x, vec g, vec* sum) {
    const vec z = distance_to_anchor(row, x), w = slope(gate, x, z + row.offset - row.fine);
    const vec wg = w * (w == 0 ? vec{} : g);
    sum[0] += w;
    sum[1] += wg;
    sum[2] += w == 0 ? vec{} : z * w;  // z of an infinite score with a huge τ is not finite
    sum[3] += w == 0 ? vec{} : z * wg;
}

KHOT_INLINE void sums(GateKind gate, const GateRow<real>& row, const real* x, const real* grad, int64_t n, double* out) {
    for (int64_t begin = 0; begin < n; begin += SUMMED) {
        const int64_t end = n - begin < SUMMED ? n : begin + SUMMED;
        vec sum[TERMS] = {};
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) add(gate, row, load(x + i), load(grad + i), sum);
        if (i < end) {
            add(gate, row, load_tail(x + i, end - i, real(__builtin_inf())), load_tail(grad + i, end - i, 0), sum);
        }
        for (int t = 0; t < TERMS; ++t) out[t] += double(sum_of_lanes(sum[t]));
    }
}

KHOT_INLINE vec moved(GateKind gate, const GateRow<real>& row, vec x, vec g, real mean) {
    const vec w = slope(gate, x, distance_to_anchor(row, x) + row.offset - row.fine);
    return w == 0 ? vec{} : (w * (g - mean)) * (row.twice_rate * real(0.5));
}

KHOT_INLINE void product(GateKind gate, const GateRow<real>& row, const real* x, const real* grad, real mean, real* out,
                         int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(out + i, moved(gate, row, load(x + i), load(grad + i), mean));
    if (i == n) return;
    const vec last = moved(gate, row, load_tail(x + i, n - i, 0), load_tail(grad + i, n - i, 0), mean);
    store_tail(out + i, last, n - i);
}

#define KHOT_SHARD_LOOPS(name)                                                                                         \
    static void name##_weights(const GateRow<real>& row, const real* x, real* y, int64_t n) {                          \
        weights(GateKind::name, row, x, y, n);                                                                         \
    }                                                                                                                  \
    static void name##_sums(const GateRow<real>& row, const real* x, const real* grad, int64_t n, double* out) {       \
        sums(GateKind::name, row, x, grad, n, out);                                                                    \
    }                                                                                                                  \
    static void name##_product(const GateRow<real>& row, const real* x, const real* grad, real mean, real* out,        \
                               int64_t n) {                                                                            \
        product(GateKind::name, row, x, grad, mean, out, n);                                                           \
    }

KHOT_SHARD_LOOPS(logistic)
KHOT_SHARD_LOOPS(laplace)
KHOT_SHARD_LOOPS(sparse)
#undef KHOT_SHARD_LOOPS

static const ShardTable<real> shard_table = {
    {logistic_weights, logistic_sums, logistic_product},
    {laplace_weights, laplace_sums, laplace_product},
    {sparse_weights, sparse_sums, sparse_product},
};
