// The first evaluation of sigmoid_topk.cpp, which is the only one for most rows; after vector.inl and estimates.inl.

// u = exp((x − anchor)·rate). In float by 2^z, which takes fewer instructions. The difference comes before the product,
// so that scores with a large common offset lose nothing; that it may overflow does no harm unless rate is tiny, and then
// the row is not ordinary: see set_group().
struct Exponent {
    real anchor, rate;
};

KHOT_INLINE Exponent exponent_of(real anchor, real rate) {
    return {anchor, KHOT_SINGLE ? rate * real(1.4426950408889634) : rate};
}

KHOT_INLINE vec exponential_of(vec x, const Exponent& by) {
    const vec z = (x - by.anchor) * by.rate;
    return KHOT_SINGLE ? power_of_two(z) : exponential(z);
}

struct LanePowers {
    vec y[POWERS];
};

// The exponentials of one block, at most SUM_BLOCK long, and Σ yᵐ at t = 1.
KHOT_INLINE LanePowers start_block(const real* x, const Exponent& by, real* u, int64_t n) {
    LanePowers sums = {};
    const auto add = [&](vec v) __attribute__((always_inline)) {
        const vec y = quotient(v, v + 1);
        // Cubes that would be subnormal, which is slow, count for nothing.
        const vec square = y > real(KHOT_SINGLE ? 3e-13 : 1e-100) ? y * y : vec{}, cube = square * y;
        sums.y[0] += y;
        sums.y[1] += square;
        sums.y[2] += cube;
        sums.y[3] += square * square;
        sums.y[4] += square * cube;
    };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec v = exponential_of(load(x + i), by);
        store(u + i, v);
        add(v);
    }
    if (i < n) {
        const vec v = exponential_of(load_tail(x + i, n - i, -real(__builtin_inf())), by);
        store_tail(u + i, v, n - i);
        add(v);
    }
    return sums;
}

static PowerSums start(const real* x, real anchor, real rate, real* u, int64_t n) {
    const Exponent by = exponent_of(anchor, rate);
    PowerSums total = {};
    KHOT_BLOCKS(n) {
        const LanePowers sums = start_block(x + begin, by, u + begin, end - begin);
        for (int m = 0; m < POWERS; ++m) total.y[m] += double(sum_of_lanes(sums.y[m]));
    }
    return total;
}

static void start_rows(const real* x, real* u, int64_t n, int count, SearchGroup<real>& group) {
    if (n > SUM_BLOCK) {
        for (int r = 0; r < count; ++r) {
            group.set_powers(r, start(x + r * n, group.anchor[r], group.rate[r], u + r * n, n));
        }
        return;
    }
    vec lanes[POWERS][GROUP];
    real sums[POWERS][GROUP] = {};
    for (int r = 0; r < count; ++r) {
        const LanePowers powers = start_block(x + r * n, exponent_of(group.anchor[r], group.rate[r]), u + r * n, n);
        for (int m = 0; m < POWERS; ++m) lanes[m][r] = powers.y[m];
    }
    for (int m = 0; m < POWERS; ++m) sums_of_lanes(lanes[m], count, sums[m]);
#pragma omp simd
    for (int r = 0; r < GROUP; ++r) {
        group.excess[r] = real(double(sums[0][r]) - group.k[r]);
        group.slope[r] = sums[0][r] - sums[1][r];
        group.fall[0][r] = sums[1][r] - sums[2][r];
        group.fall[1][r] = sums[2][r] - sums[3][r];
        group.fall[2][r] = sums[3][r] - sums[4][r];
    }
}

// The first step. With p the weights at t = 1 and t = 1/(1 + v),
//
//     Σy = Σp + v Σ p(1 − p)/(1 + vp) = Σp + v (d₁ − d₂v + d₃v² − d₄v³ + …),    dₘ = Σ pᵐ(1 − p),
//
// a Stieltjes series, whose Padé approximants converge quickly for all v > −1. Those of type [0/1], [1/1] and [1/2]
// make Σy = k an equation of first or second degree for v. What the last two differ by bounds the error of the last,
// while |v| is below a half, by a tenth of it or so.
static void first_step(SearchGroup<real>& group) {
    const real close = KHOT_SINGLE ? real(2e-6) : real(4e-15);
#pragma omp simd
    for (int r = 0; r < GROUP; ++r) {
        const real scale = 1 / group.slope[r], f = group.excess[r] * scale;
        const real d2 = group.fall[0][r] * scale, d3 = group.fall[1][r] * scale, d4 = group.fall[2][r] * scale;
        const real determinant = d3 - d2 * d2;  // a variance
        const real b = d3 / d2, b1 = (d4 - d3 * d2) / determinant, b2 = (d2 * d4 - d3 * d3) / determinant;
        const real middle3 = 1 + f * b, square3 = middle3 * middle3 - 4 * f * (b - d2);
        const real middle4 = 1 + f * b1, square4 = middle4 * middle4 - 4 * f * (b1 - d2 + f * b2);
        const real v2 = -f / (1 + f * d2);
        const real v3 = -2 * f / (middle3 + real(__builtin_sqrt(square3)));
        const real v4 = -2 * f / (middle4 + real(__builtin_sqrt(square4)));
        const bool spread = determinant > real(1e-3) * d3;  // else the weights are nearly alike, and fewer terms do
        const real v = spread ? v4 : v3, change = spread ? v4 - v3 : 4 * (v3 - v2);
        const bool usable = v > real(-0.98) && v < real(50);  // NaN is not
        // Where that leads nowhere, Halley's step, with exp(s) ≈ (1 + s/16)^16.
        const real halley = 2 * f / (2 - f * (1 - 2 * d2)), root = 1 + halley * real(1.0 / 16);
        const real root2 = root * root, root4 = root2 * root2, root8 = root4 * root4;
        const bool near = halley > -4 && halley < 4;
        group.t[r] = usable ? 1 / (1 + v) : (near ? root8 * root8 : real(1));
        group.size[r] = usable || near ? real(1) : real(8);
        group.certain[r] = v > real(-0.5) && v < real(0.5) && change < close && change > -close ? 1 : 0;
    }
}
