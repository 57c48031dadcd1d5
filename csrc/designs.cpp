// Draws of exactly k units: systematic sampling and tree pivotal sampling, one draw after another.
//
// Both read inclusion probabilities as they are given and normalise them on the way, π + π(1 − π)·share, so
// that they sum to k: see khot.designs.arguments.normalised. With an order they go through the units in it. What the
// draws mean is said in khot/designs/systematic.py and khot/designs/pivotal_tree.py.
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

// What a row needs to be normalised, and how many of its units are certain.
struct Norm {
    double share;
    int64_t certain;
};

template <typename real>
Norm norm_of(const real* probs, int64_t n, int64_t k) {
    double sum = 0, room = 0;
    int64_t certain = 0;
#pragma omp simd reduction(+ : sum, room, certain)
    for (int64_t i = 0; i < n; ++i) {
        const double p = probs[i];
        sum += p;
        room += p * (1 - p);
        certain += p >= 1;
    }
    const double share = room > 0 ? (double(k) - sum) / room : 0;
    return {share < -1 ? -1 : share > 1 ? 1 : share, certain};
}

inline double normalised(double p, double share) { return p + p * (1 - p) * share; }

constexpr int64_t STRETCH = 512;  // units whose sums are in the first cache at a time

// Cumulative sums are integers, in units of 2^-shift: they add up exactly, and four times as fast as doubles, each
// of which would wait for the one before. A unit is drawn where the sum, less u, passes a whole number.
template <typename real>
void systematic_row(const real* probs, const int64_t* order, double u, real* out, int64_t n, int64_t k) {
    const Norm norm = norm_of(probs, n, k);
    const int64_t wanted = k - norm.certain;
    int shift = 61;
    while ((wanted >> (62 - shift)) > 0) --shift;
    const double scale = double(int64_t(1) << shift);
    int64_t sum = -int64_t(u * scale) - 1, drawn = 0;
    if (order != nullptr) {
        for (int64_t i = 0; i < n; ++i) out[i] = 0;
    }
    int64_t sums[STRETCH + 1];
    for (int64_t begin = 0; begin < n; begin += STRETCH) {
        const int64_t count = n - begin < STRETCH ? n - begin : STRETCH;
        if (order == nullptr) {
            for (int64_t i = 0; i < count; ++i) {
                const double p = probs[begin + i];
                sums[i + 1] = p >= 1 ? 0 : int64_t(normalised(p, norm.share) * scale + (p > 0 ? 0.5 : 0.0));
            }
        } else {
            for (int64_t i = 0; i < count; ++i) {
                const double p = probs[order[begin + i]];
                sums[i + 1] = p >= 1 ? 0 : int64_t(normalised(p, norm.share) * scale + (p > 0 ? 0.5 : 0.0));
            }
        }
        sums[0] = sum;
        for (int64_t i = 0; i < count; ++i) {
            sum += sums[i + 1];
            sums[i + 1] = sum;
        }
        if (order == nullptr) {
            for (int64_t i = 0; i < count; ++i) {
                const int hit = int((sums[i + 1] >> shift) - (sums[i] >> shift));
                drawn += hit;
                out[begin + i] = real(hit + (probs[begin + i] >= 1));
            }
        } else {
            for (int64_t i = 0; i < count; ++i) {
                const int64_t at = order[begin + i];
                const int hit = int((sums[i + 1] >> shift) - (sums[i] >> shift));
                drawn += hit;
                if (hit + (probs[at] >= 1) > 0) out[at] = 1;
            }
        }
    }
    // The last whole number is where the sum ends, and rounding decides whether it is passed.
    for (int64_t i = n - 1; i >= 0 && drawn != wanted; --i) {
        const int64_t at = order == nullptr ? i : order[i];
        if (!(probs[at] > 0 && probs[at] < 1)) continue;
        if (drawn < wanted && out[at] == 0) {
            out[at] = 1;
            ++drawn;
        } else if (drawn > wanted && out[at] > 0) {
            out[at] = 0;
            --drawn;
        }
    }
}

// rho has room for all levels, leaves first, and z for the leaves. The uniforms are those of a heap: the root first.
template <typename real>
void pivotal_row(const real* probs, const int64_t* order, const double* u, real* out, int64_t n, int64_t k, double* rho,
                 unsigned char* z) {
    const Norm norm = norm_of(probs, n, k);
    int64_t floor_of_root = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double p = normalised(probs[order == nullptr ? i : order[i]], norm.share);
        const bool certain = p >= 1;
        rho[i] = certain ? 0 : p;
        floor_of_root += certain;
    }
    double* level = rho;
    int64_t size = n, padded = 1;
    int depth = 0;
    while (padded < n) padded *= 2;
    for (; size > 1 || padded > 1; ++depth) {
        const int64_t parents = (size + 1) / 2;
        if (size & 1) level[size] = 0;
        double* above = level + 2 * parents;
        for (int64_t i = 0; i < parents; ++i) {
            const double s = level[2 * i] + level[2 * i + 1];
            const bool over = s >= 1;
            above[i] = s - (over ? 1.0 : 0.0);
            floor_of_root += over;
        }
        level = above;
        size = parents;
        padded /= 2;
    }
    z[0] = k - floor_of_root > 0;
    // Down again: the sizes of the levels are those of the way up.
    for (int64_t nodes = 1; depth > 0; --depth, nodes *= 2) {
        int64_t below = n;
        double* children = rho;
        for (int step = 1; step < depth; ++step) {
            const int64_t parents = (below + 1) / 2;
            children += 2 * parents;
            below = parents;
        }
        const double* uniform = u + (nodes - 1);
        for (int64_t i = (below + 1) / 2 - 1; i >= 0; --i) {  // from the right, so that z may be widened in place
            const double a = children[2 * i], b = children[2 * i + 1], s = a + b;
            const bool over = s >= 1, mine = z[i] != 0;
            unsigned char left = over && mine, right = left;
            if (mine != over) {
                left = uniform[i] < (over ? 1 - b : a) / (over ? 2 - s : s > 0 ? s : 1.0);
                right = !left;
            }
            z[2 * i] = left;
            z[2 * i + 1] = right;
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        const int64_t at = order == nullptr ? i : order[i];
        out[at] = real(z[i] || normalised(probs[at], norm.share) >= 1);
    }
}

}  // namespace

template <typename real>
void systematic(const real* probs, const int64_t* order, const double* u, real* out, int64_t draws, int64_t rows, int64_t n,
                int64_t k, int threads) {
    parallel_ranges(useful_threads(draws * rows * n, threads), draws * rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            systematic_row(probs + row % rows * n, order == nullptr ? nullptr : order + row * n, u[row], out + row * n, n,
                           k);
        }
    });
}

template <typename real>
bool pivotal(const real* probs, const int64_t* order, const double* u, int64_t uniforms, real* out, int64_t draws,
             int64_t rows, int64_t n, int64_t k, int threads) {
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(draws * rows * n, threads), draws * rows, [&](int64_t begin, int64_t end) {
        // Each level may be padded by one: fewer than 64 levels.
        double* rho = static_cast<double*>(std::malloc(sizeof(double) * size_t(2 * n + 128)));
        unsigned char* z = static_cast<unsigned char*>(std::malloc(size_t(n + 2)));
        if (rho == nullptr || z == nullptr) {
            enough_memory = false;
        } else {
            for (int64_t row = begin; row < end; ++row) {
                pivotal_row(probs + row % rows * n, order == nullptr ? nullptr : order + row * n, u + row * uniforms,
                            out + row * n, n, k, rho, z);
            }
        }
        std::free(rho);
        std::free(z);
    });
    return enough_memory;
}

template void systematic(const float*, const int64_t*, const double*, float*, int64_t, int64_t, int64_t, int64_t, int);
template void systematic(const double*, const int64_t*, const double*, double*, int64_t, int64_t, int64_t, int64_t, int);
template bool pivotal(const float*, const int64_t*, const double*, int64_t, float*, int64_t, int64_t, int64_t, int64_t,
                      int);
template bool pivotal(const double*, const int64_t*, const double*, int64_t, double*, int64_t, int64_t, int64_t, int64_t,
                      int);

}  // namespace khot
