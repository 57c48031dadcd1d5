// Where a fast path starts, from the first two moments of a row; after vector.inl.

struct LaneMoments {
    vec sum, squares;
};

// Σ(x − pivot) and Σ(x − pivot)²: with a pivot from the row, a large common offset does no harm.
KHOT_INLINE LaneMoments moments(const real* x, real pivot, int64_t n) {
    vec sum[2] = {}, squares[2] = {};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        for (int h = 0; h < 2; ++h) {
            const vec v = load(x + i + h * LANES) - pivot;
            sum[h] += v;
            squares[h] += v * v;
        }
    }
    for (; i < n; i += LANES) {
        const vec v = (i + LANES <= n ? load(x + i) : load_tail(x + i, n - i, pivot)) - pivot;
        sum[0] += v;
        squares[0] += v * v;
    }
    return {sum[0] + sum[1], squares[0] + squares[1]};
}

// The same of a sample: pieces spread evenly over a long row.
KHOT_INLINE LaneMoments sampled_moments(const real* x, int64_t n) {
    if (n <= SAMPLE) return moments(x, x[0], n);
    LaneMoments total = {};
    const int64_t pieces = SAMPLE / SAMPLE_PIECE, stride = (n - SAMPLE_PIECE) / (pieces - 1);
    for (int64_t p = 0; p < pieces; ++p) {
        const LaneMoments piece = moments(x + p * stride, x[0], SAMPLE_PIECE);
        total.sum += piece.sum;
        total.squares += piece.squares;
    }
    return total;
}

// The same with x − pivot clipped to ±reach, which a few far scores cannot spoil.
KHOT_INLINE LaneMoments clipped_moments(const real* x, real pivot, real reach, int64_t n) {
    LaneMoments total = {};
    for (int64_t i = 0; i < n; i += LANES) {
        vec v = (i + LANES <= n ? load(x + i) : load_tail(x + i, n - i, pivot)) - pivot;
        v = v > reach ? all(reach) : v;
        v = v < -reach ? all(-reach) : v;
        total.sum += v;
        total.squares += v * v;
    }
    return total;
}

// The threshold of a Gaussian row with these sums of moments, for each row of a group whose open is 0; it becomes 1
// where the standard deviation is below the limit, in units of τ. What a row gets depends on itself alone.
//
// With L = logit(k/n) and v the variance it is near −L √(1 + πv/8), as if the gate were a normal one, and, to first order
// in v and in both tails to all orders, −L − (v/2) tanh(L/2); the nearer to the mean is the better guess.
static void anchors_from(const real* sum, const real* squares, const real* pivot, real share, real limit,
                         real softness, Group<real>& group) {
#pragma omp simd
    for (int r = 0; r < GROUP; ++r) {
        const real mean = sum[r] * share, variance = squares[r] * share - mean * mean;
        const real v = variance * group.rate[r] * group.rate[r];
        const real widening = real(__builtin_sqrt(softness + real(0.39269908169872414) * (v > 0 ? v : 0)));  // π/8
        const real by_width = widening * group.logit[r], by_tilt = group.logit[r] + v * real(0.5) * group.tilt[r];
        const bool tilt = by_tilt * group.tilt[r] < by_width * group.tilt[r];
        const real anchor = pivot[r] + (mean - (tilt ? by_tilt : by_width) / group.rate[r]);
        group.anchor[r] = group.open[r] != 0 ? group.anchor[r] : anchor;
        group.mean[r] = pivot[r] + mean;
        group.spread[r] = real(__builtin_sqrt(variance));
        group.open[r] |= group.ordinary[r] != 0 && v < limit * limit ? 1 : 0;  // NaN is not
    }
}

// How many scores lie above a point.
KHOT_INLINE int64_t count_above(const real* x, real point, int64_t n) {
    ivec counts[2] = {};  // 0 and −1 from comparisons
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        counts[0] += load(x + i) > point;
        counts[1] += load(x + i + LANES) > point;
    }
    for (; i < n; i += LANES) counts[0] += (i + LANES <= n ? load(x + i) : load_tail(x + i, n - i, point)) > point;
    counts[0] += counts[1];
    int64_t total = 0;
    for (int lane = 0; lane < LANES; ++lane) total -= counts[0][lane];
    return total;
}

// The middle between the smallest score above a point and the largest at or below it.
KHOT_INLINE real middle_of_gap(const real* x, real point, int64_t n) {
    vec above = all(real(__builtin_inf())), below = all(-real(__builtin_inf()));
    for (int64_t i = 0; i < n; i += LANES) {
        const vec v = i + LANES <= n ? load(x + i) : load(x + n - LANES);  // a score seen twice does no harm
        above = v > point && v < above ? v : above;
        below = v > point || v < below ? below : v;
    }
    real upper = above[0], next = below[0];
    for (int lane = 1; lane < LANES; ++lane) {
        upper = above[lane] < upper ? above[lane] : upper;
        next = below[lane] > next ? below[lane] : next;
    }
    const real middle = upper * real(0.5) + next * real(0.5);
    return middle - middle == 0 ? middle : point;  // not finite
}

// How far the farthest score is from a point.
KHOT_INLINE real reach(const real* x, real point, int64_t n) {
    vec farthest{};
    for (int64_t i = 0; i < n; i += LANES) {
        const vec v = (i + LANES <= n ? load(x + i) : load_tail(x + i, n - i, point)) - point, size = v < 0 ? -v : v;
        farthest = size > farthest ? size : farthest;
    }
    real most = 0;
    for (int lane = 0; lane < LANES; ++lane) most = farthest[lane] > most ? farthest[lane] : most;
    return most;
}

// A point above which lie about k scores of a row that is as good as Gaussian, from its mean and spread: these are of a
// sample, and counting, at a fraction of the price of exponentials, corrects them. False if the row is not of that kind.
static bool counted_anchor(const real* x, int64_t n, Group<real>& group, int r) {
    const double k = group.k[r], rate = double(group.rate[r]), spread = double(group.spread[r]);
    if (!(spread * rate < 1e3)) return false;  // NaN too
    if (n <= ROUGH && double(reach(x, group.mean[r], n)) > 4.5 * spread) return false;  // one score makes the spread
    const double width = __builtin_sqrt(spread * spread + 2.9 / (rate * rate)), quantile = double(group.quantile[r]);
    const double density = double(n) * 0.3989422804 / width * __builtin_exp(-0.5 * quantile * quantile);
    double point = double(group.mean[r]) + width * quantile;
    double tolerated = 2 + 4 * double(n) * __builtin_sqrt(k / double(n) * (1 - k / double(n)) / double(n < SAMPLE ? n : SAMPLE));
    for (int counts = 0; counts < 4; ++counts) {
        const double excess = double(count_above(x, real(point), n)) - k, size = excess < 0 ? -excess : excess;
        if (!(size <= tolerated)) return false;
        if (size < 1) {
            if (n >= LANES && n <= SUM_BLOCK && excess == 0) point = double(middle_of_gap(x, real(point), n));
            break;
        }
        point += excess / density;
        // What the step may be wrong by, in scores: as much as a count of so many varies.
        if (2 * __builtin_sqrt(size) * rate < 0.3 * density) break;
        tolerated = 2 + size;
    }
    group.anchor[r] = real(point);
    return true;
}

// Where to start in each row; open is 1 where that is good enough. `softness` is π/8 times the variance of the gate,
// rounded to 1 for the logistic.
static void gaussian_anchors(const real* x, int64_t n, int rows, real softness, Group<real>& group) {
    vec lanes[2][GROUP];
    real sums[2][GROUP] = {};
    real pivot[GROUP] = {};
    int wide = 0;
    for (int r = 0; r < rows; ++r) {
        pivot[r] = x[r * n];
        const LaneMoments moments = sampled_moments(x + r * n, n);
        lanes[0][r] = moments.sum;
        lanes[1][r] = moments.squares;
    }
    for (int what = 0; what < 2; ++what) sums_of_lanes(lanes[what], rows, sums[what]);
    for (int r = 0; r < GROUP; ++r) group.open[r] = 0;
    anchors_from(sums[0], sums[1], pivot, real(1) / real(n < SAMPLE ? n : SAMPLE), real(WIDE), softness, group);
    for (int r = 0; r < rows; ++r) {
        group.wide[r] = group.open[r] == 0 ? 1 : 0;
        if (group.wide[r] != 0 && group.ordinary[r] != 0) group.open[r] = counted_anchor(x + r * n, n, group, r) ? 1 : 0;
        wide += group.open[r] == 0;
    }
    if (wide == 0 || n > ROUGH) return;
    // A short row of which some scores are far away, or excluded: try again without them, from the middle one of
    // three. In longer rows a selection costs little.
    for (int r = 0; r < rows; ++r) {
        if (group.open[r] != 0) continue;
        const real *row = x + r * n, a = row[n / 4], b = row[n / 2], c = row[n - 1 - n / 4];
        const real low = a < b ? a : b, high = a < b ? b : a;
        pivot[r] = c < low ? low : (c < high ? c : high);
        const LaneMoments moments = clipped_moments(row, pivot[r], real(WIDE) / group.rate[r], n);
        lanes[0][r] = moments.sum;
        lanes[1][r] = moments.squares;
    }
    for (int what = 0; what < 2; ++what) sums_of_lanes(lanes[what], rows, sums[what]);
    anchors_from(sums[0], sums[1], pivot, real(1) / real(n), real(CLIPPED_WIDE), softness, group);
}
