// Body of topk_entries.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "any.inl"
#include "reaching.inl"

static bool collect(const real* x, int64_t n, real threshold, Shares shares, int64_t k, int64_t* places) {
    int64_t found = 0;
    const vec bound = all(threshold);
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        while (begin + 2 * LANES <= n && !reaches(x + begin, bound)) begin += 2 * LANES;
        const int64_t size = n - begin < CHUNK ? n - begin : CHUNK;
        const real* chunk = x + begin;
        int32_t candidates[CHUNK];
        int count = 0;
        for (int32_t i = 0; i < size; ++i) {  // no branch that could be guessed wrong
            candidates[count] = i;
            count += int(!(chunk[i] < threshold));  // NaN too
        }
        for (int c = 0; c < count; ++c) {
            const real value = chunk[candidates[c]];
            if (!(value > threshold)) {
                int64_t& left = value == threshold ? shares.ties : shares.nans;
                if (value != value && left == 0) return false;
                if (left == 0) continue;
                --left;
            }
            if (found == k) return false;
            places[found++] = begin + candidates[c];
        }
    }
    return found == k;
}

static int64_t without_nan(const real* x, int64_t n, real* copy) {
    int64_t nans = 0;
    for (int64_t i = 0; i < n; ++i) {
        const bool nan = x[i] != x[i];
        copy[i] = nan ? -real(__builtin_inf()) : x[i];
        nans += nan;
    }
    return nans;
}

static const EntriesTable<real> entries_table = {collect, without_nan};
