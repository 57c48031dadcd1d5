// Projections on the permutahedron, by isotonic regression.
//
// For s and w, both sorted from the largest down, v = argmin over v₁ ≥ v₂ ≥ … of
//
//     l2        ½ Σ (v_i − (s_i − w_i))²         p = s − v
//     kl        Σ e^{s_i − v_i} + w_i v_i         p = exp(s − v),  w > 0
//     log_kl    Σ e^{s_i − v_i} + e^{w_i} v_i     p = s − v
//
// p is the projection of s (kl: of exp s) on the convex hull of all permutations of w. The solution is constant on
// blocks of consecutive entries: there v is the mean of s − w, or log Σe^s − log Σw. Pool adjacent violators: a new
// entry is a block of its own, and as long as a block lies above the one before it, the two become one (isotonic.h). O(n).
//
// All of it is in double, relative to the first entry of a block, and p is rounded once: ranks are right to the last
// digit of a float at n = 10⁶, whatever the size of the scores. What is left for the derivatives is the structure of
// the blocks: start[i] is the first entry of the block of entry i.
#include "isotonic.h"

#include <cstdlib>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

template <typename real, typename Rule>
void project_row(const real* s, const real* w, real* p, int64_t* start, int64_t n, Block* blocks, double* levels) {
    const int64_t count = pool<real, Rule>(s, w, n, blocks, levels);
    for (int64_t b = 0; b < count; ++b) {
        const int64_t first = blocks[b].first, end = b + 1 < count ? blocks[b + 1].first : n;
        const double offset = Rule::offset(blocks[b], w), reference = double(s[first]);
        for (int64_t i = first; i < end; ++i) {
            p[i] = real(Rule::value(offset, double(s[i]) - reference));
            start[i] = first;
        }
    }
}

}  // namespace

template <typename real>
bool isotonic(Projection kind, const real* s, int64_t s_stride, const real* w, int64_t w_stride, real* p, int64_t* start,
              int64_t rows, int64_t n, int threads) {
    bool enough_memory = true;
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        Block* blocks = static_cast<Block*>(std::malloc(sizeof(Block) * size_t(n)));
        double* levels = static_cast<double*>(std::malloc(sizeof(double) * size_t(n)));
        if (n > 0 && (blocks == nullptr || levels == nullptr)) {
            enough_memory = false;  // every writer writes the same
        } else {
            for (int64_t r = begin; r < end; ++r) {
                const real *row_s = s + r * s_stride, *row_w = w + r * w_stride;
                real* row_p = p + r * n;
                int64_t* row_start = start + r * n;
                switch (kind) {
                    case Projection::l2:
                        project_row<real, LeastSquares<real>>(row_s, row_w, row_p, row_start, n, blocks, levels);
                        break;
                    case Projection::kl:
                        project_row<real, Entropic<real>>(row_s, row_w, row_p, row_start, n, blocks, levels);
                        break;
                    case Projection::log_kl:
                        project_row<real, LogEntropic<real>>(row_s, row_w, row_p, row_start, n, blocks, levels);
                }
            }
        }
        std::free(blocks);
        std::free(levels);
    });
    return enough_memory;
}

template <typename real>
void block_sums(const real* values, const int64_t* start, real* sums, int64_t rows, int64_t n, int threads) {
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const real* row = values + r * n;
            const int64_t* row_start = start + r * n;
            real* out = sums + r * n;
            for (int64_t first = 0, next; first < n; first = next) {
                double sum = 0;
                for (next = first; next < n && row_start[next] == first; ++next) sum += double(row[next]);
                for (int64_t i = first; i < next; ++i) out[i] = real(sum);
                if (next == first) next = first + 1;  // not a start: bad input must not loop for ever
            }
        }
    });
}

template bool isotonic(Projection, const float*, int64_t, const float*, int64_t, float*, int64_t*, int64_t, int64_t,
                       int);
template bool isotonic(Projection, const double*, int64_t, const double*, int64_t, double*, int64_t*, int64_t, int64_t,
                       int);
template void block_sums(const float*, const int64_t*, float*, int64_t, int64_t, int);
template void block_sums(const double*, const int64_t*, double*, int64_t, int64_t, int);

}  // namespace khot
