// Body of hard_topk.cpp, compiled for each instruction set and type: see dispatch.h.

static bool mark(const real* x, int64_t n, real threshold, int64_t ties, real* __restrict out) {
    bits nans = 0;  // as wide as real, like `equal`, so that all fill the same vectors
    int64_t begin = 0;
    while (begin < n && ties > 0) {
        const int64_t end = n - begin < TIES_BLOCK ? n : begin + TIES_BLOCK;
        bits equal = 0;
#pragma omp simd reduction(+ : equal) reduction(| : nans)
        for (int64_t i = begin; i < end; ++i) {
            out[i] = x[i] >= threshold ? real(1) : real(0);
            equal += x[i] == threshold;
            nans |= x[i] != x[i];
        }
        ties -= equal;
        for (int64_t i = end - 1; ties < 0; --i) {
            const bool drop = x[i] == threshold;
            out[i] = drop ? real(0) : out[i];
            ties += drop;
        }
        begin = end;
    }
#pragma omp simd reduction(| : nans)
    for (int64_t i = begin; i < n; ++i) {
        out[i] = x[i] > threshold ? real(1) : real(0);
        nans |= x[i] != x[i];
    }
    return nans == 0;
}

static int64_t copy_allowed(const real* x, const unsigned char* mask, int64_t n, real* __restrict copy) {
    const real excluded = -__builtin_huge_val();
    int64_t total = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        bits nans = 0;
        if (mask == nullptr) {
#pragma omp simd reduction(+ : nans)
            for (int64_t i = begin; i < end; ++i) {
                const bool nan = x[i] != x[i];
                copy[i] = nan ? excluded : x[i];
                nans += nan;
            }
        } else {
#pragma omp simd reduction(+ : nans)
            for (int64_t i = begin; i < end; ++i) {
                const bool allowed = mask[i] != 0, nan = x[i] != x[i];
                copy[i] = (allowed & !nan) ? x[i] : excluded;
                nans += allowed & nan;
            }
        }
        total += nans;
    }
    return total;
}

static void mark_nans(const real* x, const unsigned char* mask, int64_t n, int64_t count, real* out) {
    for (int64_t i = 0; i < n && count > 0; ++i) {
        if (x[i] != x[i] && (mask == nullptr || mask[i] != 0)) {
            out[i] = 1;
            --count;
        }
    }
}

static const HardTopkTable<real> hard_topk_table = {mark, copy_allowed, mark_nans};
