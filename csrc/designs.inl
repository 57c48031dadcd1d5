// The loops over the units of a stretch of a row: see designs.cpp.

static void fixed_point(const real* probs, int64_t count, double share, double scale, uint64_t* out) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
        const double p = probs[i];
        // 2^52 + v has the integer v in its lowest bits, rounded.
        const double v = (p + p * (1 - p) * share) * scale * (p < 1 ? 1.0 : 0.0) + 4503599627370496.0;
        uint64_t word;
        __builtin_memcpy(&word, &v, sizeof word);
        out[i] = word - 0x4330000000000000ull;
    }
}

static int64_t passed(const real* probs, const uint64_t* sums, int64_t count, int shift, real* out) {
    int64_t drawn = 0;
#pragma omp simd reduction(+ : drawn)
    for (int64_t i = 0; i < count; ++i) {
        const int64_t hit = int64_t(sums[i + 1] >> shift) - int64_t(sums[i] >> shift);
        drawn += hit;
        out[i] = real(int32_t(hit)) + (probs[i] >= 1 ? real(1) : real(0));
    }
    return drawn;
}

static Norm norm(const real* probs, int64_t n, int64_t k) {
    double sum = 0, room = 0, certain = 0;
#pragma omp simd reduction(+ : sum, room, certain)
    for (int64_t i = 0; i < n; ++i) {
        const double p = probs[i];
        sum += p;
        room += p * (1 - p);
        certain += p < 1 ? 0.0 : 1.0;
    }
    const double share = room > 0 ? (double(k) - sum) / room : 0;
    return {share < -1 ? -1 : share > 1 ? 1 : share, int64_t(certain)};
}

// Fractions of the parents; how many of them are over.
static int64_t up(const double* level, int64_t parents, double* above) {
    double over = 0;
#pragma omp simd reduction(+ : over)
    for (int64_t i = 0; i < parents; ++i) {
        const double s = level[2 * i] + level[2 * i + 1], whole = s >= 1 ? 1.0 : 0.0;
        above[i] = s - whole;
        over += whole;
    }
    return int64_t(over);
}

// Without branches: which way they go is as random as the draw.
static void down(const double* level, const double* uniform, const double* z, int64_t parents, double* below) {
#pragma omp simd
    for (int64_t i = 0; i < parents; ++i) {
        const double a = level[2 * i], b = level[2 * i + 1], s = a + b;
        const double over = s >= 1 ? 1.0 : 0.0, mine = z[i];
        const double share = over > 0 ? 2 - s : s, chance = over > 0 ? 1 - b : a;
        const double left = uniform[i] * share < chance ? 1.0 : 0.0;
        const double both = over * mine, duel = over + mine - 2 * both;
        below[2 * i] = both + duel * left;
        below[2 * i + 1] = both + duel * (1 - left);
    }
}

static const DesignTable<real> design_table = {norm, fixed_point, passed, up, down};
