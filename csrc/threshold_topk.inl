// Body of threshold_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "blocks.inl"

// u = exp(z), for z = (x − anchor)·rate. Half the difference is taken, which cannot overflow.
static void laplace_start(const real* x, real anchor, real rate, real* u, int64_t n) {
    const real half = anchor * real(0.5), twice = rate * 2;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(u + i, exponential((load(x + i) * real(0.5) - half) * twice));
    if (i < n) {
        const vec v = load_tail(x + i, n - i, anchor);
        store_tail(u + i, exponential((v * real(0.5) - half) * twice), n - i);
    }
}

// Twice the distance of a gate to 0 below the corner, and to 1 above it: r or 1/r, with r = exp(z + e).
KHOT_INLINE vec laplace_distance(vec r, ivec above) { return above ? 1 / r : r; }

static Tails laplace_tails(const real* u, double e, int64_t n) {
    const vec factor = all(real(__builtin_exp(e)));
    Tails total = {};
    KHOT_BLOCKS(n) {
        vec low{}, high{}, count{};
        const auto add = [&](vec r, ivec counts) __attribute__((always_inline)) {
            const ivec above = (r > 1) & counts;
            const vec distance = (vec)((ivec)laplace_distance(r, above) & counts);
            low += (vec)(~above & (ivec)distance);
            high += (vec)(above & (ivec)distance);
            count += (vec)(above & (ivec)all(real(1)));
        };
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) add(load(u + i) * factor, ~ivec{});
        if (i < end) {
            const vec r = load_tail(u + i, end - i, 0) * factor;
            add(r, r > 0);
        }
        total.low += double(sum_of_lanes(low));
        total.high += double(sum_of_lanes(high));
        total.above += double(sum_of_lanes(count));
    }
    return total;
}

static void laplace_write(const real* u, double e, real* y, real* state, int64_t n) {
    const vec factor = all(real(__builtin_exp(e)));
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        const vec r = (whole ? load(u + i) : load_tail(u + i, n - i, 1)) * factor;
        const ivec above = r > 1;
        const vec distance = laplace_distance(r, above) * real(0.5);
        const vec weight = above ? 1 - distance : distance, residual = above ? -distance : distance;
        if (whole) {
            store(y + i, weight);
            if (state != nullptr) store(state + i, residual);
        } else {
            store_tail(y + i, weight, n - i);
            if (state != nullptr) store_tail(state + i, residual, n - i);
        }
    }
}

// z, kept within ±10⁴: beyond, a gate is 0 or 1.
static void sparse_start(const real* x, real anchor, real rate, real* u, int64_t n) {
    const real half = anchor * real(0.5), twice = rate * 2;
    const vec far = all(real(1e4));
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        vec z = ((whole ? load(x + i) : load_tail(x + i, n - i, anchor)) * real(0.5) - half) * twice;
        z = z > far ? far : z;
        z = z < -far ? -far : z;
        if (whole) {
            store(u + i, z);
        } else {
            store_tail(u + i, z, n - i);
        }
    }
}

static Tails sparse_tails(const real* u, double e, int64_t n) {
    const vec shift = all(real(e));
    Tails total = {};
    KHOT_BLOCKS(n) {
        vec low{}, between{}, count{};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec a = (i + LANES <= end ? load(u + i) : load_tail(u + i, end - i, -real(1e6))) + shift;
            const ivec above = a >= 1, inside = (a > 0) & ~above;
            low += (vec)(inside & (ivec)a);
            between += (vec)(inside & (ivec)all(real(1)));
            count += (vec)(above & (ivec)all(real(1)));
        }
        total.low += double(sum_of_lanes(low));
        total.high += double(sum_of_lanes(between));
        total.above += double(sum_of_lanes(count));
    }
    return total;
}

static void sparse_write(const real* u, double e, real* y, real* state, int64_t n) {
    const vec shift = all(real(e));
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        const vec a = (whole ? load(u + i) : load_tail(u + i, n - i, 0)) + shift;
        const vec positive = a > 0 ? a : vec{}, weight = positive < 1 ? positive : all(real(1));
        if (whole) {
            store(y + i, weight);
            if (state != nullptr) store(state + i, weight);
        } else {
            store_tail(y + i, weight, n - i);
            if (state != nullptr) store_tail(state + i, weight, n - i);
        }
    }
}

static const ThresholdTable<real> threshold_table = {
    census,
    {laplace_start, laplace_tails, laplace_write},
    {sparse_start, sparse_tails, sparse_write},
};
