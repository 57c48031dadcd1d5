// Soft ranks (l2) and their Jacobian, each in one call.
//
// The ranks are the projection of ±x/τ on the permutahedron of 1 … n (isotonic.cpp): sort, pool, scatter back. Within
// a block the projection moves with what an entry has more than the block's mean, so the Jacobian is ±(g − mean of g
// over the block)/τ: symmetric, and all it needs is the order and where blocks begin. Both fit one array: order[i] is
// the index of the i-th entry of the sorted row, complemented (~) if a block begins there.
#include <cfloat>
#include <cmath>
#include <cstdlib>

#include "isotonic.h"
#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

inline int64_t index_of(int64_t entry) { return entry < 0 ? ~entry : entry; }

constexpr double LIMIT = DBL_MAX / 16;

// The temperature, raised where a finite score divided by it would overflow: such scores have hard ranks either way.
template <typename real>
double without_overflow(double tau, const real* sorted, int64_t n) {
    if (std::fabs(double(sorted[0])) <= LIMIT * tau && std::fabs(double(sorted[n - 1])) <= LIMIT * tau) return tau;
    double largest = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double size = std::fabs(double(sorted[i]));
        if (size <= DBL_MAX && size > largest) largest = size;
    }
    return largest > LIMIT * tau ? largest / LIMIT : tau;
}

inline double finite(double value) {
    constexpr double most = DBL_MAX / 4;
    return value > most ? most : value < -most ? -most : value;
}

template <typename real>
void rank_row(double tau, bool descending, real* ranks, int64_t* order, int64_t n, double* s, const double* w, Block* blocks,
              double* levels) {
    const double scale = (descending ? -1 : 1) * without_overflow(tau, ranks, n);
    for (int64_t i = 0; i < n; ++i) s[i] = finite(double(ranks[i]) / scale);
    const int64_t count = pool<double, LeastSquares<double>>(s, w, n, blocks, levels);
    for (int64_t b = 0; b < count; ++b) {
        const int64_t first = blocks[b].first, end = b + 1 < count ? blocks[b + 1].first : n;
        const double offset = LeastSquares<double>::offset(blocks[b], w), reference = s[first];
        for (int64_t i = first; i < end; ++i) {
            ranks[order[i]] = real(LeastSquares<double>::value(offset, s[i] - reference));
        }
        order[first] = ~order[first];
    }
}

}  // namespace

template <typename real>
bool soft_rank(const real* x, const real* temperature, int64_t temperature_stride, bool descending, real* ranks,
               int64_t* order, int64_t rows, int64_t n, int threads) {
    if (n == 0) return true;
    // Sorted from the largest ±x down, with the values where the ranks will be.
    if (!argsort(x, !descending, ranks, order, rows, n, threads)) return false;
    bool enough_memory = true;
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        double* numbers = static_cast<double*>(std::malloc(3 * sizeof(double) * size_t(n)));
        Block* blocks = static_cast<Block*>(std::malloc(sizeof(Block) * size_t(n)));
        if (n > 0 && (numbers == nullptr || blocks == nullptr)) {
            enough_memory = false;  // every writer writes the same
        } else {
            double *s = numbers, *w = numbers + n, *levels = numbers + 2 * n;
            for (int64_t i = 0; i < n; ++i) w[i] = double(n - i);
            for (int64_t r = begin; r < end; ++r) {
                const double tau = double(temperature[r * temperature_stride]);
                rank_row(tau, descending, ranks + r * n, order + r * n, n, s, w, blocks, levels);
            }
        }
        std::free(numbers);
        std::free(blocks);
    });
    return enough_memory;
}

template <typename real>
void soft_rank_jacobian(const real* grad, const int64_t* order, const real* temperature, int64_t temperature_stride,
                        bool descending, real* out, int64_t rows, int64_t n, int threads) {
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const real* g = grad + r * n;
            const int64_t* row = order + r * n;
            real* result = out + r * n;
            const double tau = double(temperature[r * temperature_stride]), scale = descending ? -tau : tau;
            for (int64_t first = 0, next; first < n; first = next) {
                double sum = double(g[index_of(row[first])]);
                for (next = first + 1; next < n && row[next] >= 0; ++next) sum += double(g[row[next]]);
                const double mean = sum / double(next - first);
                for (int64_t i = first; i < next; ++i) {
                    const int64_t at = index_of(row[i]);
                    // A block of one does not move at all, however large its gradient.
                    result[at] = next == first + 1 ? real(0) : real((double(g[at]) - mean) / scale);
                }
            }
        }
    });
}

template bool soft_rank(const float*, const float*, int64_t, bool, float*, int64_t*, int64_t, int64_t, int);
template bool soft_rank(const double*, const double*, int64_t, bool, double*, int64_t*, int64_t, int64_t, int);
template void soft_rank_jacobian(const float*, const int64_t*, const float*, int64_t, bool, float*, int64_t, int64_t,
                                 int);
template void soft_rank_jacobian(const double*, const int64_t*, const double*, int64_t, bool, double*, int64_t, int64_t,
                                 int);

}  // namespace khot
