// Body of hard_topk.cpp, compiled for each instruction set and type: see dispatch.h.

static Marked mark(const real* x, int64_t n, real threshold, real* __restrict out) {
    Marked marked = {0, 0};
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        bits ones = 0, nans = 0;  // as wide as real, so that both fill the same vectors
#pragma omp simd reduction(+ : ones, nans)
        for (int64_t i = begin; i < end; ++i) {
            const bool one = x[i] >= threshold;
            out[i] = one ? real(1) : real(0);
            ones += one;
            nans += x[i] != x[i];
        }
        marked.ones += ones;
        marked.nans += nans;
    }
    return marked;
}

static void unmark_last(const real* x, int64_t n, real threshold, int64_t excess, real* __restrict out) {
    int64_t end = n;
    while (end > 0 && excess > 0) {
        const int64_t begin = end < BLOCK ? 0 : end - BLOCK;
        bits equal = 0;
#pragma omp simd reduction(+ : equal)
        for (int64_t i = begin; i < end; ++i) equal += x[i] == threshold;
        if (equal <= excess) {
#pragma omp simd
            for (int64_t i = begin; i < end; ++i) out[i] = x[i] > threshold ? real(1) : real(0);
            excess -= equal;
        } else {
            for (int64_t i = end - 1; excess > 0; --i) {
                const bool take = x[i] == threshold;
                out[i] = take ? real(0) : out[i];
                excess -= take;
            }
        }
        end = begin;
    }
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
                copy[i] = allowed & !nan ? x[i] : excluded;
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

static const HardTopkTable<real> hard_topk_table = {mark, unmark_last, copy_allowed, mark_nans};
