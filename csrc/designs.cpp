// Draws of exactly k units: systematic, tree pivotal and conditional Poisson sampling, one draw after another.
//
// The first two read inclusion probabilities as they are given and normalise them on the way, π + π(1 − π)·share, so
// that they sum to k: see khot.designs.arguments.normalised. With an order they go through the units in it. What the
// draws mean is said in khot/designs: systematic/systematic.py, pivotal/_duels.py and exponential/_symmetric_scan.py.
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
struct DesignTable {
    Norm (*norm)(const real* probs, int64_t n, int64_t k);
    // Normalised probabilities times scale, as integers; 0 for those that are certain.
    void (*fixed_point)(const real* probs, int64_t count, double share, double scale, uint64_t* out);
    // Ones at certain units and where a sum passes a multiple of 2^shift; how many do.
    int64_t (*passed)(const real* probs, const uint64_t* sums, int64_t count, int shift, real* out);
    // One level of a tree of duels up, and down again.
    int64_t (*up)(const double* level, int64_t parents, double* above);
    void (*down)(const double* level, const double* uniform, const double* z, int64_t parents, double* below);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "designs.inl"
#include "dispatch.h"

namespace khot {
namespace {

const DesignTable<float>& table(float) { return KHOT_PICK(f32::design_table); }
const DesignTable<double>& table(double) { return KHOT_PICK(f64::design_table); }

inline double normalised(double p, double share) { return p + p * (1 - p) * share; }

constexpr int64_t STRETCH = 512;  // units whose sums are in the first cache at a time

// Cumulative sums are integers, in units of 2^-shift: they add up exactly, and faster than doubles, each of which
// would wait four cycles for the one before. A unit is drawn where 1 − u plus the sum passes a whole number.
template <typename real>
void systematic_row(const real* probs, const int64_t* order, double u, real* out, int64_t n, int64_t k) {
    const DesignTable<real>& loops = table(real());
    const Norm norm = loops.norm(probs, n, k);
    const int64_t wanted = k - norm.certain;
    int shift = 51;
    while ((wanted >> (62 - shift)) > 0) --shift;
    const double scale = double(int64_t(1) << shift);
    uint64_t sum = (uint64_t(1) << shift) - 1 - uint64_t(u * scale);
    int64_t drawn = 0;
    if (order != nullptr) {
        for (int64_t i = 0; i < n; ++i) out[i] = 0;
    }
    uint64_t sums[STRETCH + 1];
    real shuffled[STRETCH], chosen[STRETCH];
    for (int64_t begin = 0; begin < n; begin += STRETCH) {
        const int64_t count = n - begin < STRETCH ? n - begin : STRETCH;
        const real* mine = probs + begin;
        if (order != nullptr) {
            for (int64_t i = 0; i < count; ++i) shuffled[i] = probs[order[begin + i]];
            mine = shuffled;
        }
        loops.fixed_point(mine, count, norm.share, scale, sums + 1);
        sums[0] = sum;
        for (int64_t i = 1; i <= count; ++i) {
            sum += sums[i];
            sums[i] = sum;
        }
        drawn += loops.passed(mine, sums, count, shift, order == nullptr ? out + begin : chosen);
        for (int64_t i = 0; order != nullptr && i < count; ++i) {
            if (chosen[i] > 0) out[order[begin + i]] = 1;
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

constexpr int64_t LEAVES = 1024;  // below one node: a tree that fits the cache is built twice sooner than kept

// The levels of a tree in one piece of memory, leaves first, each padded to an even number.
struct Levels {
    double* rho[64];
    int64_t size[64];
    int count;
};

// Fills the levels above the leaves, which are at memory; returns how many nodes are over.
template <typename real>
int64_t raise(const DesignTable<real>& loops, double* memory, int64_t leaves, Levels* levels) {
    int64_t over = 0;
    int top = 0;
    levels->rho[0] = memory;
    levels->size[0] = leaves;
    for (; levels->size[top] > 1; ++top) {
        const int64_t size = levels->size[top], parents = (size + 1) / 2;
        if (size & 1) levels->rho[top][size] = 0;
        levels->size[top + 1] = parents;
        levels->rho[top + 1] = levels->rho[top] + 2 * parents;
        over += loops.up(levels->rho[top], parents, levels->rho[top + 1]);
    }
    levels->count = top;
    return over;
}

// Goes down from z[0], with the uniforms of one of that many blocks side by side; u are those of the whole heap. Returns
// where the leaves are, in z or in other.
template <typename real>
double* lower(const DesignTable<real>& loops, const Levels& levels, const double* u, int64_t block, int64_t blocks, double* z,
              double* other) {
    int64_t width = 1;
    for (int level = levels.count - 1; level >= 0; --level, width *= 2) {
        loops.down(levels.rho[level], u + (blocks * width - 1) + block * width, z, levels.size[level + 1], other);
        double* swapped = z;
        z = other;
        other = swapped;
    }
    return z;
}

// top has room for a tree over the blocks and twice their number. The uniforms are those of a heap: the root first.
template <typename real>
void pivotal_row(const real* probs, const int64_t* order, const double* u, real* out, int64_t n, int64_t k, double* top) {
    const DesignTable<real>& loops = table(real());
    const Norm norm = loops.norm(probs, n, k);
    int64_t leaves = 1, padded = 1;
    while (leaves < n && leaves < LEAVES) leaves *= 2;
    while (padded < n) padded *= 2;
    const int64_t blocks = (n + leaves - 1) / leaves;
    double memory[2 * LEAVES + 2], z[LEAVES], other[LEAVES];
    Levels levels;
    const auto build = [&](int64_t block) {
        int64_t whole = 0;
        const int64_t begin = block * leaves, count = n - begin < leaves ? n - begin : leaves;
        for (int64_t i = 0; i < count; ++i) {
            const double p = normalised(probs[order == nullptr ? begin + i : order[begin + i]], norm.share);
            const double certain = p >= 1 ? 1.0 : 0.0;
            memory[i] = p * (1 - certain);
            whole += int64_t(certain);
        }
        for (int64_t i = count; i < leaves; ++i) memory[i] = 0;
        return whole + raise(loops, memory, leaves, &levels);
    };
    int64_t floor_of_root = 0;
    for (int64_t block = 0; block < blocks; ++block) {
        floor_of_root += build(block);
        top[block] = levels.rho[levels.count][0];
    }
    Levels above;
    floor_of_root += raise(loops, top, blocks, &above);
    double* first = top + 2 * blocks + 64;
    first[0] = k > floor_of_root ? 1 : 0;
    const double* roots = lower(loops, above, u, 0, 1, first, first + blocks + 2);
    for (int64_t block = 0; block < blocks; ++block) {
        build(block);
        z[0] = roots[block];
        const double* drawn = lower(loops, levels, u, block, padded / leaves, z, other);
        const int64_t begin = block * leaves, count = n - begin < leaves ? n - begin : leaves;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = order == nullptr ? begin + i : order[begin + i];
            out[at] = real(drawn[i] + (normalised(probs[at], norm.share) >= 1 ? 1.0 : 0.0));
        }
    }
}

// Row i of the table, of n + 1 rows, has e_0 … e_k of the first i weights.
void polynomials(const double* weights, int64_t n, int64_t k, double* table) {
    const int64_t width = k + 1;
    table[0] = 1;
    for (int64_t j = 1; j <= k; ++j) table[j] = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double w = weights[i];
        const double* before = table + i * width;
        double* after = table + (i + 1) * width;
        after[0] = 1;
#pragma omp simd
        for (int64_t j = 1; j <= k; ++j) after[j] = before[j] + w * before[j - 1];
    }
}

// The last of j units out of the first `end` is l with probability (e_j(l + 1) − e_j(l)) / e_j(all of them): the first l
// with e_j(l + 1) above a uniform share of it. As _symmetric_scan.py has it.
int64_t last_of(const double* table, int64_t width, int64_t j, int64_t end, double u) {
    const double total = table[end * width + j], share = u > 0x1p-54 ? u : 0x1p-54;
    double level = total * share;
    if (!(level < total)) level = std::nextafter(total, 0.0);
    int64_t low = 0, high = end - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (table[(middle + 1) * width + j] > level) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

void draw_subset(const double* table, int64_t n, int64_t k, const double* u, int64_t* out) {
    int64_t end = n;
    for (int64_t j = k; j >= 1; --j) {
        end = last_of(table, k + 1, j, end, u[k - j]);
        out[j - 1] = end;
    }
}

// The same for sets weighted by the product of their weights and the sum of their summands a: row i of the second table has
// Σ_{s of j of the first i} Π w Σ a, and one unit of a set gives its summand. Once that is found, the others are a plain
// subset of those before.
void summed_polynomials(const double* weights, const double* summands, int64_t n, int64_t k, const double* table,
                        double* second) {
    const int64_t width = k + 1;
    for (int64_t j = 0; j <= k; ++j) second[j] = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double w = weights[i], a = summands[i];
        const double *plain = table + i * width, *before = second + i * width;
        double* after = second + (i + 1) * width;
        after[0] = 0;
#pragma omp simd
        for (int64_t j = 1; j <= k; ++j) after[j] = before[j] + w * (before[j - 1] + a * plain[j - 1]);
    }
}

void draw_weighted_subset(const double* table, const double* second, const double* summands, int64_t n, int64_t k,
                          const double* u, int64_t* out) {
    const int64_t width = k + 1;
    int64_t end = n;
    bool found = false;
    for (int64_t j = k; j >= 1; --j) {
        const int64_t unit = last_of(found ? table : second, width, j, end, u[k - j]);
        if (!found) {
            const double a = summands[unit] * table[unit * width + j - 1], rest = second[unit * width + j - 1];
            found = u[2 * k - j] * (a + rest) < a;
        }
        out[j - 1] = unit;
        end = unit;
    }
}

}  // namespace

bool subsets(const double* weights, const double* u, int64_t* indices, int64_t draws, int64_t rows, int64_t n, int64_t k,
             int threads) {
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(rows * n * k, threads), rows, [&](int64_t begin, int64_t end) {
        double* table = static_cast<double*>(std::malloc(sizeof(double) * size_t((n + 1) * (k + 1))));
        if (table == nullptr) {
            enough_memory = false;
            return;
        }
        for (int64_t row = begin; row < end; ++row) {
            polynomials(weights + row * n, n, k, table);
            for (int64_t draw = 0; draw < draws; ++draw) {
                const int64_t at = (draw * rows + row) * k;
                draw_subset(table, n, k, u + at, indices + at);
            }
        }
        std::free(table);
    });
    return enough_memory;
}

bool weighted_subsets(const double* weights, const double* summands, const double* u, int64_t* indices, int64_t draws,
                      int64_t rows, int64_t n, int64_t k, int threads) {
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(rows * n * k, threads), rows, [&](int64_t begin, int64_t end) {
        const int64_t size = (n + 1) * (k + 1);
        double* table = static_cast<double*>(std::malloc(2 * sizeof(double) * size_t(size)));
        if (table == nullptr) {
            enough_memory = false;
            return;
        }
        for (int64_t row = begin; row < end; ++row) {
            polynomials(weights + row * n, n, k, table);
            summed_polynomials(weights + row * n, summands + row * n, n, k, table, table + size);
            for (int64_t draw = 0; draw < draws; ++draw) {
                const int64_t at = (draw * rows + row) * k;
                draw_weighted_subset(table, table + size, summands + row * n, n, k, u + 2 * at, indices + at);
            }
        }
        std::free(table);
    });
    return enough_memory;
}

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
        // The tree over the blocks, each of whose levels may be padded by one, and two rows of its leaves.
        const int64_t blocks = n / LEAVES + 1;
        double* top = static_cast<double*>(std::malloc(sizeof(double) * size_t(4 * blocks + 128)));
        if (top == nullptr) {
            enough_memory = false;
            return;
        }
        for (int64_t row = begin; row < end; ++row) {
            pivotal_row(probs + row % rows * n, order == nullptr ? nullptr : order + row * n, u + row * uniforms,
                        out + row * n, n, k, top);
        }
        std::free(top);
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
