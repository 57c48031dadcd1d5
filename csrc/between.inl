// Body of between.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "any.inl"

static void count(const real* x, real low, real high, int64_t n, int64_t* above, int64_t* between) {
    const int64_t block = 1 << 20;  // lanes of 32 bits count no farther
    int64_t n_above = 0, n_between = 0, i = 0;
    while (i + LANES <= n) {
        const int64_t end = n - i < block ? n : i + block;
        ivec up{}, in{};
        for (; i + LANES <= end; i += LANES) {
            const vec v = load(x + i);
            up -= v > high;  // true is −1
            in -= (v >= low) & (v <= high);
        }
        for (int lane = 0; lane < LANES; ++lane) {
            n_above += up[lane];
            n_between += in[lane];
        }
    }
    for (; i < n; ++i) {
        n_above += x[i] > high;
        n_between += x[i] >= low && x[i] <= high;
    }
    *above = n_above;
    *between = n_between;
}

static void collect(const real* x, real low, real high, int64_t n, real* out) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec v = load(x + i);
        if (__builtin_expect(!any((v >= low) & (v <= high)), 1)) continue;
        for (int lane = 0; lane < LANES; ++lane) {
            if (v[lane] >= low && v[lane] <= high) *out++ = v[lane];
        }
    }
    for (; i < n; ++i) {
        if (x[i] >= low && x[i] <= high) *out++ = x[i];
    }
}

static const BetweenTable<real> between_table = {count, collect};
