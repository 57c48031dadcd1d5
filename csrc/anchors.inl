// Where a fast path starts, from the first two moments of a row; after vector.inl.

// What the next group of rows reads is fetched while this one is computed: samples are too far apart for the processor to
// foresee that they will be needed. Beyond the end of the last row it does nothing.
KHOT_INLINE void fetch_ahead(const real* x) { __builtin_prefetch(x + GROUP_ELEMENTS); }

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
// where the standard deviation, of `clipped` scores that from the pivot, is below the limit, in units of τ. What a row gets
// depends on itself alone.
//
// With L = logit(k/n) and v the variance it is near −L √(1 + πv/8), as if the gate were a normal one, and, to first order
// in v and in both tails to all orders, −L − (v/2) tanh(L/2); the nearer to the mean is the better guess.
KHOT_INLINE void anchors_from(const real* sum, const real* squares, const real* pivot, real share, real limit,
                         bool clipped, real softness, Group<real>& group) {
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
        const real deviation = clipped ? squares[r] * share * group.rate[r] * group.rate[r] : v;
        group.open[r] |= group.ordinary[r] != 0 && deviation < limit * limit ? 1 : 0;  // NaN is not
    }
}

// How many scores lie above a point, by lane.
KHOT_INLINE vec counts_above(const real* x, real point, int64_t n) {
    ivec counts[2] = {};  // 0 and −1 from comparisons
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        counts[0] += load(x + i) > point;
        counts[1] += load(x + i + LANES) > point;
    }
    for (; i < n; i += LANES) counts[0] += (i + LANES <= n ? load(x + i) : load_tail(x + i, n - i, point)) > point;
    return -__builtin_convertvector(counts[0] + counts[1], vec);
}

// The lanes moved round by so many.
KHOT_INLINE vec rotated(vec v, int by) {
    ivec lane;
    for (int i = 0; i < LANES; ++i) lane[i] = (i + by) % LANES;
    return shuffled(v, lane);
}

// The middle between the smallest score above a point and the largest at or below it.
KHOT_INLINE real middle_of_gap(const real* x, real point, int64_t n) {
    vec above = all(real(__builtin_inf())), below = all(-real(__builtin_inf()));
    for (int64_t i = 0; i < n; i += LANES) {
        // A score seen twice does no harm.
        const vec v = i + LANES <= n ? load(x + i) : (n >= LANES ? load(x + n - LANES) : load_tail(x, n, x[0]));
        above = v > point && v < above ? v : above;
        below = v > point || v < below ? below : v;
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        const vec other_above = rotated(above, half), other_below = rotated(below, half);
        above = other_above < above ? other_above : above;
        below = other_below > below ? other_below : below;
    }
    const real upper = above[0], next = below[0];
    const real middle = upper * real(0.5) + next * real(0.5);
    return middle - middle == 0 ? middle : point;  // not finite
}

// Points above which lie about k scores, in the rows whose open is 0; it becomes 1 where one is found soon. Counting takes
// a small fraction of the time of exponentials. It begins where the point would be in a Gaussian row of this mean and
// spread, and steps by the density there, ever farther, until the point is enclosed; then by the density in between.
__attribute__((noinline)) static void counted_anchors(const real* x, int64_t n, int rows, Group<real>& group) {
    real point[GROUP], density[GROUP], low[GROUP], high[GROUP], above_low[GROUP] = {}, above_high[GROUP] = {};
    int busy[GROUP], left = 0;
    for (int r = 0; r < rows; ++r) {
        const real rate = group.rate[r], spread = group.spread[r];
        const real width = real(__builtin_sqrt(spread * spread + real(2.9) / (rate * rate)));
        point[r] = group.mean[r] + width * group.quantile[r];
        density[r] = group.density[r] / width;
        if (group.open[r] == 0 && group.ordinary[r] != 0 && spread * rate < real(1e6)) busy[left++] = r;  // NaN is not
    }
    for (int round = 0; left > 0 && round < 8; ++round) {
        vec lanes[GROUP];
        real counts[GROUP];
        int still = 0;
        for (int b = 0; b < left; ++b) lanes[b] = counts_above(x + busy[b] * n, point[busy[b]], n);
        sums_of_lanes(lanes, left, counts);
        for (int b = 0; b < left; ++b) {
            const int r = busy[b];
            const real excess = real(double(counts[b]) - group.k[r]), size = excess < 0 ? -excess : excess;
            if (size < 1) {
                const bool gap = n <= SUM_BLOCK && excess == 0;
                group.anchor[r] = gap ? middle_of_gap(x + r * n, point[r], n) : point[r];
                group.open[r] = 1;
                continue;
            }
            (excess > 0 ? low : high)[r] = point[r];
            (excess > 0 ? above_low : above_high)[r] = excess;
            // What a step may be wrong by, in scores: as much as a count of so many varies.
            const real slack = 2 * group.rate[r] / density[r];
            const bool last = slack * slack * size < real(0.09), enclosed = above_low[r] > 0 && above_high[r] < 0;
            if (enclosed) density[r] = (above_low[r] - above_high[r]) / (high[r] - low[r]);
            point[r] += excess / density[r];
            if (!enclosed) density[r] *= real(0.5);
            if (last || (enclosed && (high[r] - low[r]) * group.rate[r] < real(ENCLOSED))) {
                group.anchor[r] = point[r];
                group.open[r] = 1;
            } else {
                busy[still++] = r;
            }
        }
        left = still;
    }
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
    anchors_from(sums[0], sums[1], pivot, real(1) / real(n < SAMPLE ? n : SAMPLE), real(WIDE), false, softness, group);
    for (int r = 0; r < rows; ++r) {
        group.wide[r] = group.open[r] == 0 ? 1 : 0;
        wide += group.open[r] == 0;
    }
    if (wide == 0) return;
    if (n <= ROUGH) {
        // A short row of which some scores are far away, or excluded: try again without them, from the middle one of three.
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
        real mean[GROUP], spread[GROUP];  // those of all scores are the ones to count by
        __builtin_memcpy(mean, group.mean, sizeof mean);
        __builtin_memcpy(spread, group.spread, sizeof spread);
        anchors_from(sums[0], sums[1], pivot, real(1) / real(n), real(CLIPPED_WIDE), true, softness, group);
        __builtin_memcpy(group.mean, mean, sizeof mean);
        __builtin_memcpy(group.spread, spread, sizeof spread);
    }
    counted_anchors(x, n, rows, group);
}
