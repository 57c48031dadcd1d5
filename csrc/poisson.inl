// Conditional Poisson sampling of as many rows as a register has lanes: see poisson.cpp. Arrays are of registers, one
// lane a row; only the double form is used.
#include "vector.inl"

#define AT(array, i) load((array) + (i) * LANES)
#define PUT(array, i, v) store((array) + (i) * LANES, v)

// p = σ(t) and q = σ(−t).
static void gates(const real* t, int64_t n, real* p, real* q) {
    for (int64_t i = 0; i < n; ++i) {
        const vec v = AT(t, i), e = exponential(v > 0 ? -v : v), large = 1 / (1 + e), small = e * large;
        PUT(p, i, v > 0 ? large : small);
        PUT(q, i, v > 0 ? small : large);
    }
}

// Row i of the table has P(j of the first i units), j = 0 … k, as far as k can be reached from there.
static void prefixes(const real* p, const real* q, int64_t n, int64_t k, real* table) {
    const int64_t width = k + 1;
    for (int64_t j = 0; j <= k; ++j) PUT(table, j, all(j == 0 ? 1 : 0));
    for (int64_t i = 0; i < n; ++i) {
        const real* before = table + i * width * LANES;
        real* after = table + (i + 1) * width * LANES;
        const vec hit = AT(p, i), miss = AT(q, i);
        vec left = AT(before, 0);
        PUT(after, 0, miss * left);
        for (int64_t j = 1; j <= k; ++j) {
            const vec here = AT(before, j);
            PUT(after, j, miss * here + hit * left);
            left = here;
        }
    }
}

// P(j of the units after i), from that of the units after i + 1.
KHOT_INLINE void extend(real* suffix, int64_t k, vec hit, vec miss) {
    for (int64_t j = k; j >= 1; --j) PUT(suffix, j, miss * AT(suffix, j) + hit * AT(suffix, j - 1));
    PUT(suffix, 0, miss * AT(suffix, 0));
}

// Σ_a prefix[a] suffix[total − a]: P(total of all units but one).
KHOT_INLINE vec meet(const real* prefix, const real* suffix, int64_t total) {
    vec even = all(0), odd = all(0);
    int64_t a = 0;
    for (; a + 1 <= total; a += 2) {
        even += AT(prefix, a) * AT(suffix, total - a);
        odd += AT(prefix, a + 1) * AT(suffix, total - a - 1);
    }
    if (a == total) even += AT(prefix, a) * AT(suffix, 0);
    return even + odd;
}

KHOT_INLINE bool any_lane(ivec mask) {
    bits found = 0;
    for (int lane = 0; lane < LANES; ++lane) found |= mask[lane];
    return found != 0;
}

// pi = P(xᵢ = 1 | k in all) and rest = 1 − pi, both to relative accuracy. k >= 1; suffix has room for k + 1.
static void inclusion(const real* p, const real* q, int64_t n, int64_t k, const real* table, real* suffix, real* pi,
                      real* rest) {
    const int64_t width = k + 1;
    const vec whole = AT(table, n * width + k);
    for (int64_t j = 0; j <= k; ++j) PUT(suffix, j, all(j == 0 ? 1 : 0));
    for (int64_t i = n - 1; i >= 0; --i) {
        const real* prefix = table + i * width * LANES;
        const vec hit = AT(p, i), miss = AT(q, i);
        vec with = hit * meet(prefix, suffix, k - 1) / whole;
        with = with > 1 ? all(1) : with;  // by rounding; not a NaN
        vec without = 1 - with;
        if (any_lane(with > real(0.9))) {
            without = miss * meet(prefix, suffix, k) / whole;
            without = without > 1 ? all(1) : without;
        }
        PUT(pi, i, with);
        PUT(rest, i, without);
        extend(suffix, k, hit, miss);
    }
}

// Cov g. The second table has E[Σ_{drawn} g; j of the first i]; g is centred first, as the covariance ignores constants.
static void covariance(const real* p, const real* q, real* g, int64_t n, int64_t k, const real* table, real* second,
                       real* suffix, real* out) {
    const int64_t width = k + 1;
    vec weight = all(0), mean = all(0);
    for (int64_t i = 0; i < n; ++i) {
        const vec v = AT(p, i) * AT(q, i);
        weight += v;
        mean += v * AT(g, i);
    }
    mean = weight > 0 ? mean / weight : all(0);
    for (int64_t j = 0; j <= k; ++j) PUT(second, j, all(0));
    for (int64_t i = 0; i < n; ++i) {
        const real *counts = table + i * width * LANES, *before = second + i * width * LANES;
        real* after = second + (i + 1) * width * LANES;
        const vec hit = AT(p, i), miss = AT(q, i), gain = AT(g, i) - mean;
        PUT(g, i, gain);
        PUT(after, 0, miss * AT(before, 0));
        for (int64_t j = 1; j <= k; ++j) {
            PUT(after, j, miss * AT(before, j) + hit * (AT(before, j - 1) + gain * AT(counts, j - 1)));
        }
    }
    const vec whole = AT(table, n * width + k), total = AT(second, n * width + k) / whole;
    real* gains = suffix + width * LANES;
    for (int64_t j = 0; j <= k; ++j) {
        PUT(suffix, j, all(j == 0 ? 1 : 0));
        PUT(gains, j, all(0));
    }
    for (int64_t i = n - 1; i >= 0; --i) {
        const real *prefix = table + i * width * LANES, *gained = second + i * width * LANES;
        const vec hit = AT(p, i), miss = AT(q, i), gain = AT(g, i);
        const vec others = meet(prefix, suffix, k - 1);
        const vec with = meet(gained, suffix, k - 1) + meet(prefix, gains, k - 1) + gain * others;
        PUT(out, i, hit * (with - others * total) / whole);
        for (int64_t j = k; j >= 1; --j) {
            const vec shifted = AT(gains, j - 1) + gain * AT(suffix, j - 1);
            PUT(gains, j, miss * AT(gains, j) + hit * shifted);
        }
        PUT(gains, 0, miss * AT(gains, 0));
        extend(suffix, k, hit, miss);
    }
}

// From found inclusion probabilities to the next odds; the largest error of each row. Certain and impossible units stay.
static void improve(const real* target, const real* pi, const real* rest, int64_t n, real* odds, real* error) {
    vec worst = all(0);
    for (int64_t i = 0; i < n; ++i) {
        const vec wanted = AT(target, i), spare = 1 - wanted, found = AT(pi, i), left = AT(rest, i);
        const vec off = found > wanted ? found - wanted : wanted - found, now = AT(odds, i);
        const vec relative = off / (wanted * spare + real(1e-4));
        const ivec open = (wanted > 0) & (spare > 0);
        const vec next = now * (wanted * left) / (spare * found);
        worst = (open & (relative > worst)) ? relative : worst;
        // A step that is no number leaves the row as it is, and its error above what is asked for.
        PUT(odds, i, (open & (next > real(1e-290)) & (next < real(1e290))) ? next : now);
    }
    store(error, worst);
}

// Gates of these odds: exactly 0 and 1 where the target is.
static void gates_of_odds(const real* target, const real* odds, int64_t n, real* p, real* q) {
    for (int64_t i = 0; i < n; ++i) {
        const vec wanted = AT(target, i), w = AT(odds, i), miss = 1 / (1 + w);
        PUT(p, i, wanted <= 0 ? all(0) : wanted >= 1 ? all(1) : w * miss);
        PUT(q, i, wanted <= 0 ? all(1) : wanted >= 1 ? all(0) : miss);
    }
}

#undef AT
#undef PUT

static const PoissonTable<real> poisson_table = {LANES,      gates,   prefixes, inclusion,
                                                 covariance, improve, gates_of_odds};
