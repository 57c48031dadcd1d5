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
// entry is a block of its own, and as long as a block lies above the one before it, the two become one. O(n).
//
// All of it is in double, relative to the first entry of a block, and p is rounded once: ranks are right to the last
// digit of a float at n = 10⁶, whatever the size of the scores. What is left for the derivatives is the structure of
// the blocks: start[i] is the first entry of the block of entry i.
#include <cmath>
#include <cstdlib>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

// A block from `first` on, with sums of s and of w that are small because they are relative to the first.
struct Block {
    int64_t first, count;
    double of_s, of_w;
};

template <typename real>
struct LeastSquares {  // Σ(s − s_first), Σw
    static Block single(const real*, const real* w, int64_t i) { return {i, 1, 0, double(w[i])}; }
    static void merge(Block& before, const Block& last, const real* s, const real*) {
        before.of_s += last.of_s + double(last.count) * (double(s[last.first]) - double(s[before.first]));
        before.of_w += last.of_w;
        before.count += last.count;
    }
    static double level(const Block& block, const real* s, const real*) {
        return double(s[block.first]) + (block.of_s - block.of_w) / double(block.count);
    }
    static double value(const Block& block, const real* s, const real*, int64_t i) {
        return (double(s[i]) - double(s[block.first])) + (block.of_w - block.of_s) / double(block.count);
    }
};

template <typename real>
struct Entropic {  // Σe^{s − s_first}, Σw
    static Block single(const real*, const real* w, int64_t i) { return {i, 1, 1, double(w[i])}; }
    static void merge(Block& before, const Block& last, const real* s, const real*) {
        before.of_s += last.of_s * std::exp(double(s[last.first]) - double(s[before.first]));
        before.of_w += last.of_w;
        before.count += last.count;
    }
    static double level(const Block& block, const real* s, const real*) {
        return double(s[block.first]) + std::log(block.of_s / block.of_w);
    }
    static double value(const Block& block, const real* s, const real*, int64_t i) {
        return std::exp(double(s[i]) - double(s[block.first])) * (block.of_w / block.of_s);
    }
};

template <typename real>
struct LogEntropic {  // Σe^{s − s_first}, Σe^{w − w_first}
    static Block single(const real*, const real*, int64_t i) { return {i, 1, 1, 1}; }
    static void merge(Block& before, const Block& last, const real* s, const real* w) {
        before.of_s += last.of_s * std::exp(double(s[last.first]) - double(s[before.first]));
        before.of_w += last.of_w * std::exp(double(w[last.first]) - double(w[before.first]));
        before.count += last.count;
    }
    static double level(const Block& block, const real* s, const real* w) {
        return double(s[block.first]) - double(w[block.first]) + std::log(block.of_s / block.of_w);
    }
    static double value(const Block& block, const real* s, const real* w, int64_t i) {
        return (double(s[i]) - double(s[block.first])) + double(w[block.first]) + std::log(block.of_w / block.of_s);
    }
};

template <typename real, typename Rule>
void project_row(const real* s, const real* w, real* p, int64_t* start, int64_t n, Block* blocks, double* levels) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        Block last = Rule::single(s, w, i);
        double level = Rule::level(last, s, w);
        while (count > 0 && !(levels[count - 1] > level)) {  // NaN joins what is before it
            Rule::merge(blocks[count - 1], last, s, w);
            last = blocks[--count];
            level = Rule::level(last, s, w);
        }
        blocks[count] = last;
        levels[count++] = level;
    }
    for (int64_t b = 0; b < count; ++b) {
        const int64_t end = b + 1 < count ? blocks[b + 1].first : n;
        for (int64_t i = blocks[b].first; i < end; ++i) {
            p[i] = real(Rule::value(blocks[b], s, w, i));
            start[i] = blocks[b].first;
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
