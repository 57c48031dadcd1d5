// The loop over the units of a step of Brewer's method: see splitting.cpp.

// Weights π (D + m − π) / (D + m (1 − π)) of the next draw, and their sums over blocks; their total.
static double weigh(const double* probs, int64_t n, double gone, double left, double* weights, double* sums) {
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += BREWER_BLOCK) {
        const int64_t end = begin + BREWER_BLOCK < n ? begin + BREWER_BLOCK : n;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = begin; i < end; ++i) {
            const double p = probs[i], w = p * (gone + left - p) / (gone + left * (1 - p));
            weights[i] = w;
            sum += w;
        }
        sums[begin / BREWER_BLOCK] = sum;
        total += sum;
    }
    return total;
}

static const SplittingTable<real> splitting_table = {weigh};
