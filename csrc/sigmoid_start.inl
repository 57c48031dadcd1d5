// The first evaluation of sigmoid_topk.cpp, which is the only one for most rows; after vector.inl, estimates.inl and anchors.inl.

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

struct LaneSums {
    vec count, distance, moment[MOMENTS];
};

// Adds the weights u/(u + 1). Of a row that is not hard, Σ yᵐ goes to the moments from m = 2 on: see powers_to_moments(). Of
// a hard one each weight counts by its signed distance to the nearer of 0 and 1, as in add_gates().
KHOT_INLINE void add_start(vec u, bool hard, LaneSums& sums) {
    const real least = KHOT_SINGLE ? real(3e-8) : real(1e-60);  // powers of less would be subnormal, which is slow
    if (!hard) {
        const vec y = u / (u + 1), square = y > least ? y * y : vec{}, cube = square * y;
        sums.distance += y;
        sums.moment[0] += square;
        sums.moment[1] += cube;
        sums.moment[2] += square * square;
        sums.moment[3] += square * cube;
        return;
    }
    const ivec above = u > 1;
    const vec inverse = 1 / (u + 1), y = u * inverse, a = above ? inverse : y;
    const vec slope = a * (1 - a), low = y > least ? y : vec{}, first = slope * low, square = low * low;
    sums.count += (vec)(above & (ivec)all(real(1)));
    sums.distance += above ? -a : a;
    sums.moment[0] += slope;
    sums.moment[1] += first;
    sums.moment[2] += first * low;
    sums.moment[3] += first * square;
}

// The exponentials of one block, at most SUM_BLOCK long, and the sums at t = 1.
KHOT_INLINE LaneSums start_block(const real* x, const Exponent& by, bool hard, real* u, int64_t n) {
    LaneSums sums = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        fetch_ahead(x + i);
        const vec v = exponential_of(load(x + i), by);
        store(u + i, v);
        add_start(v, hard, sums);
    }
    if (i < n) {
        const vec v = exponential_of(load_tail(x + i, n - i, -real(__builtin_inf())), by);
        store_tail(u + i, v, n - i);
        add_start(v, hard, sums);
    }
    return sums;
}

// From Σy and Σ yᵐ for m = 2, 3, … to Σ yᵐ(1 − y) for m = 1, 2, ….
KHOT_INLINE void powers_to_moments(double power, double* moment) {
    for (int m = 0; m < MOMENTS; ++m) {
        const double next = moment[m];
        moment[m] = power - next;
        power = next;
    }
}

static StartSums start(const real* x, real anchor, real rate, bool hard, real* u, int64_t n) {
    const Exponent by = exponent_of(anchor, rate);
    StartSums total = {};
    KHOT_BLOCKS(n) {
        const LaneSums sums = hard ? start_block(x + begin, by, true, u + begin, end - begin)
                                   : start_block(x + begin, by, false, u + begin, end - begin);
        total.count += double(sum_of_lanes(sums.count));
        total.distance += double(sum_of_lanes(sums.distance));
        for (int m = 0; m < MOMENTS; ++m) total.moment[m] += double(sum_of_lanes(sums.moment[m]));
    }
    if (!hard) powers_to_moments(total.distance, total.moment);
    return total;
}

static void start_rows(const real* x, real* u, int64_t n, int count, SearchGroup<real>& group) {
    if (n > SUM_BLOCK) {
        for (int r = 0; r < count; ++r) {
            group.set_start(r, start(x + r * n, group.anchor[r], group.rate[r], group.hard[r] != 0, u + r * n, n));
        }
        return;
    }
    vec lanes[2 + MOMENTS][GROUP];
    real sums[2 + MOMENTS][GROUP] = {};
    bool any_hard = false;
    for (int r = 0; r < count; ++r) {
        const Exponent by = exponent_of(group.anchor[r], group.rate[r]);
        const bool hard = group.hard[r] != 0;
        const LaneSums of_row = hard ? start_block(x + r * n, by, true, u + r * n, n)
                                     : start_block(x + r * n, by, false, u + r * n, n);
        any_hard |= hard;
        lanes[0][r] = of_row.distance;
        lanes[1][r] = of_row.count;
        for (int m = 0; m < MOMENTS; ++m) lanes[2 + m][r] = of_row.moment[m];
    }
    for (int what = 0; what < 2 + MOMENTS; ++what) {
        if (what != 1 || any_hard) sums_of_lanes(lanes[what], count, sums[what]);
    }
#pragma omp simd
    for (int r = 0; r < GROUP; ++r) {
        const bool hard = group.hard[r] != 0;
        real power = sums[0][r];
        group.excess[r] = real(double(power) + (double(sums[1][r]) - group.k[r]));
        for (int m = 0; m < MOMENTS; ++m) {
            group.moment[m][r] = hard ? sums[2 + m][r] : power - sums[2 + m][r];
            power = sums[2 + m][r];
        }
        group.slope[r] = group.moment[0][r];
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
        const real d2 = group.moment[1][r] * scale, d3 = group.moment[2][r] * scale, d4 = group.moment[3][r] * scale;
        const real determinant = d3 - d2 * d2;  // a variance
        const real b = d3 / d2, b1 = (d4 - d3 * d2) / determinant, b2 = (d2 * d4 - d3 * d3) / determinant;
        const real middle3 = 1 + f * b, square3 = middle3 * middle3 - 4 * f * (b - d2);
        const real middle4 = 1 + f * b1, square4 = middle4 * middle4 - 4 * f * (b1 - d2 + f * b2);
        const real v2 = -f / (1 + f * d2);
        const real v3 = -2 * f / (middle3 + real(__builtin_sqrt(square3)));
        const real v4 = -2 * f / (middle4 + real(__builtin_sqrt(square4)));
        const bool spread = determinant > real(1e-3) * d3;  // else the weights are nearly alike, and fewer terms do
        const real v = spread ? v4 : v3, change = spread ? v4 - v3 : 4 * (v3 - v2);
        // A root v in this range makes f no larger; of a larger one the squares above may overflow, and v be anything.
        const bool usable = v > real(-0.98) && v < real(50) && f > -50 && f < 50;  // NaN is not
        // Where that leads nowhere, Halley's step, with exp(s) ≈ (1 + s/16)^16.
        const real halley = 2 * f / (2 - f * (1 - 2 * d2)), root = 1 + halley * real(1.0 / 16);
        const real root2 = root * root, root4 = root2 * root2, root8 = root4 * root4;
        const bool near = halley > -4 && halley < 4;
        group.t[r] = usable ? 1 / (1 + v) : (near ? root8 * root8 : real(1));
        group.size[r] = usable || near ? real(1) : real(8);
        group.certain[r] = usable && v > real(-0.5) && v < real(0.5) && change < close && change > -close ? 1 : 0;
    }
}
