// Body of sigmoid_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "blocks.inl"
#include "estimates.inl"
#include "anchors.inl"
#include "sigmoid_start.inl"

struct Gates {
    vec distance, count, slope, bend;
};

// Adds the gates y = u/(u + t). Each is taken as its signed distance to the nearer of 0 and 1, and a count of
// those nearer to 1: sums of small numbers, which keep the digits that a sum of weights near 1 would lose.
KHOT_INLINE void add_gates(vec u, vec t, Gates& sums) {
    const vec inverse = quotient(all(1), u + t);
    const ivec above = u > t;
    const vec y = u * inverse;
    const vec a = above ? t * inverse : y;
    const vec slope = a * (1 - a);  // a² could be subnormal, which is slow
    sums.distance += above ? -a : a;
    sums.count += (vec)(above & (ivec)all(real(1)));
    sums.slope += slope;
    sums.bend += slope * (1 - 2 * y);
}

KHOT_INLINE void add_block(const Gates& sums, Sums& total) {
    total.count += double(sum_of_lanes(sums.count));
    total.distance += double(sum_of_lanes(sums.distance));
    total.slope += double(sum_of_lanes(sums.slope));
    total.bend += double(sum_of_lanes(sums.bend));
}

// The sums over one block, at most SUM_BLOCK long.
KHOT_INLINE Gates evaluate_block(const real* u, vec t, int64_t n) {
    Gates sums = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) add_gates(load(u + i), t, sums);
    if (i < n) add_gates(load_tail(u + i, n - i, 0), t, sums);
    return sums;
}

// u = exp((x − anchor)·rate); u may be x itself. Half the difference is taken, which cannot overflow.
KHOT_INLINE void exponentials_block(const real* x, real anchor, real rate, real* u, int64_t n) {
    const real half = anchor * real(0.5), twice = rate * 2;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(u + i, exponential((load(x + i) * real(0.5) - half) * twice));
    if (i < n) {
        const vec v = load_tail(x + i, n - i, anchor);
        store_tail(u + i, exponential((v * real(0.5) - half) * twice), n - i);
    }
}

static Sums evaluate(const real* u, real t, int64_t n) {
    Sums total = {};
    KHOT_BLOCKS(n) add_block(evaluate_block(u + begin, all(t), end - begin), total);
    return total;
}

static void exponentials(const real* x, real anchor, real rate, real* u, int64_t n) {
    exponentials_block(x, anchor, rate, u, n);
}

// Sums of a, a² and a³ over the gates below and above a split at u = 1, where a is the distance to 0 below and
// to 1 above: their derivatives in the shift are polynomials in a. The sums above are what the ones below
// leave of the total; that is accurate where it matters, since the two sides balance at the root.
static SplitSums evaluate_split(const real* u, real t, bool ties_below, int64_t n) {
    double below[3] = {}, total[3] = {};
    const real before_one = KHOT_SINGLE ? real(1 - 5.9604645e-8) : real(1 - 1.1102230246251565e-16);
    const vec split = all(ties_below ? real(1) : before_one);
    KHOT_BLOCKS(n) {
        vec p[3] = {}, s[3] = {};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec v = i + LANES <= end ? load(u + i) : load_tail(u + i, end - i, 0);
            const ivec is_below = v <= split;
            const vec quotient = (is_below ? v : all(t)) / (v + t);
            const vec a = (vec)((v < CAPPED) & (ivec)quotient);
            const vec a2 = a > real(KHOT_SINGLE ? 1e-12 : 1e-100) ? a * a : vec{}, a3 = a2 * a;  // never subnormal
            s[0] += a;
            s[1] += a2;
            s[2] += a3;
            p[0] += (vec)(is_below & (ivec)a);
            p[1] += (vec)(is_below & (ivec)a2);
            p[2] += (vec)(is_below & (ivec)a3);
        }
        for (int j = 0; j < 3; ++j) {
            below[j] += double(sum_of_lanes(p[j]));
            total[j] += double(sum_of_lanes(s[j]));
        }
    }
    SplitSums sums;
    const double above[3] = {total[0] - below[0], total[1] - below[1], total[2] - below[2]};
    const double* sides[2] = {below, above};
    double* results[2] = {sums.below, sums.above};
    for (int side = 0; side < 2; ++side) {
        const double* m = sides[side];
        results[side][0] = m[0];
        results[side][1] = m[0] - m[1];
        results[side][2] = m[0] - 3 * m[1] + 2 * m[2];
    }
    return sums;
}

// The signed distance of y to the nearer of 0 and 1, for sum = u + t. Where u is capped it is 0, and not that of the cap:
// a slope there, however small, would be multiplied by the largest scores of all.
KHOT_INLINE vec residual_of(vec u, vec t, vec sum, vec weight) {
    const vec above = (vec)((u < CAPPED) & (ivec)quotient(-t, sum));
    return u > t ? above : weight;
}

// The weights y = u/(u + t), quotients, which cannot exceed 1; and their residuals, unless that is null. y may be u itself.
static void write(const real* u, real t, real* y, real* residual, int64_t n) {
    const vec limit = all(t);
    int64_t i = 0;
    if (residual == nullptr) {
        for (; i + LANES <= n; i += LANES) {
            const vec v = load(u + i);
            store(y + i, quotient(v, v + limit));
        }
    } else {
        for (; i + LANES <= n; i += LANES) {
            const vec v = load(u + i), sum = v + limit, weight = quotient(v, sum);
            store(y + i, weight);
            store(residual + i, residual_of(v, limit, sum, weight));
        }
    }
    if (i < n) {
        const vec v = load_tail(u + i, n - i, 0), sum = v + limit, weight = quotient(v, sum);
        store_tail(y + i, weight, n - i);
        if (residual != nullptr) store_tail(residual + i, residual_of(v, limit, sum, weight), n - i);
    }
}

static void evaluate_rows(const real* u, int64_t n, const int* rows, int count, SearchGroup<real>& group) {
    if (n > SUM_BLOCK) {
        for (int b = 0; b < count; ++b) group.set_sums(rows[b], evaluate(u + rows[b] * n, group.t[rows[b]], n));
        return;
    }
    vec lanes[4][GROUP];
    real sums[4][GROUP] = {};
    for (int b = 0; b < count; ++b) {
        const Gates gates = evaluate_block(u + rows[b] * n, all(group.t[rows[b]]), n);
        lanes[0][b] = gates.count;
        lanes[1][b] = gates.distance;
        lanes[2][b] = gates.slope;
        lanes[3][b] = gates.bend;
    }
    for (int what = 0; what < 4; ++what) sums_of_lanes(lanes[what], count, sums[what]);
    for (int b = 0; b < count; ++b) {
        group.set_sums(rows[b], {double(sums[0][b]), double(sums[1][b]), double(sums[2][b]), double(sums[3][b])});
    }
}

static void write_rows(real* u, real* residual, int64_t n, int count, const SearchGroup<real>& group) {
    for (int r = 0; r < count; ++r) {
        if (group.open[r] != 0) continue;
        write(u + r * n, group.t[r], u + r * n, residual == nullptr ? nullptr : residual + r * n, n);
    }
}

// One step of Halley's method on Σy − k for each row: updates t, and settles the rows that are close.
static void halley_step(SearchGroup<real>& group) {
    for (int r = 0; r < GROUP; r += LANES) {
        const vec f = load(group.excess + r), slope = load(group.slope + r), bend = load(group.bend + r);
        const vec newton = f / slope, step = 2 * newton / (2 - newton * (bend / slope));  // squares might be subnormal
        const vec size = step < 0 ? -step : step;
        const ivec usable = size < all(4);  // NaN is not
        const vec t = load(group.t + r);
        store(group.t + r, usable ? t * exponential(step) : t);
        store(group.size + r, usable ? size : all(8));
    }
}

static AtOne counts_at_one(const real* u, int64_t n) {
    AtOne total = {};
    KHOT_BLOCKS(n) {
        ivec above{}, equal{};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec v = i + LANES <= end ? load(u + i) : load_tail(u + i, end - i, 0);
            above += v > 1;
            equal += v == 1;
        }
        for (int lane = 0; lane < LANES; ++lane) {
            total.above -= above[lane];
            total.equal -= equal[lane];
        }
    }
    return total;
}

static const SigmoidTable<real> sigmoid_table = {
    gaussian_anchors, start, first_step,   evaluate, halley_step,   start_rows,     evaluate_rows,
    write_rows,       write, exponentials, census,   counts_at_one, evaluate_split,
};
