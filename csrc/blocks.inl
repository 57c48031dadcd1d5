// Sums over long rows, block by block; after vector.inl.

// The loops below go block by block, so that what one writes is in the nearest cache when the next reads it,
// and so that sums in `real` stay short. `end` is the first element after the block.
#define KHOT_BLOCKS(n) \
    for (int64_t begin = 0, end; begin < n && (end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK, true); begin = end)

static Census census(const real* u, int64_t n) {
    // Counted in lanes of `bits`: 0 and −1 from comparisons, so the sums are negative counts.
    Census total = {};
    KHOT_BLOCKS(n) {
        ivec excluded{}, surely{}, nan{};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec v = i + LANES <= end ? load(u + i) : load_tail(u + i, end - i, 0);
            excluded += v == -real(__builtin_inf());
            surely += v == real(__builtin_inf());
            nan += v != v;
        }
        for (int lane = 0; lane < LANES; ++lane) {
            total.excluded -= excluded[lane];
            total.surely -= surely[lane];
            total.nan -= nan[lane];
        }
    }
    return total;
}
