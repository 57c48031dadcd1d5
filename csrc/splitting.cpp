// Draws by splitting, one unit after the other: Brewer's method and Tillé's elimination.
//
// All of a draw's uniform variables are given. What the steps mean is said in khot/designs: splitting/brewer.py
// and splitting/_elimination.py, which do the same with tensors.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

constexpr int64_t BREWER_BLOCK = 32;  // units whose weights are added up before they are searched

template <typename real>
struct SplittingTable {
    double (*weigh)(const double* probs, int64_t n, double gone, double left, double* weights, double* sums);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "splitting.inl"
#include "dispatch.h"

namespace khot {
namespace {

const SplittingTable<double>& loops() { return KHOT_PICK(f64::splitting_table); }

// The first unit with a cumulative weight above the level, of those with a positive weight.
int64_t search(const double* weights, const double* sums, int64_t n, double level) {
    double before = 0;
    int64_t block = 0, last = -1;
    const int64_t blocks = (n + BREWER_BLOCK - 1) / BREWER_BLOCK;
    while (block + 1 < blocks && before + sums[block] <= level) before += sums[block++];
    for (int64_t i = block * BREWER_BLOCK; i < n; ++i) {
        if (!(weights[i] > 0)) continue;
        before += weights[i];
        last = i;
        if (before > level) return i;
    }
    // Rounding: the last that can be drawn.
    for (int64_t i = block * BREWER_BLOCK - 1; last < 0 && i >= 0; --i) {
        if (weights[i] > 0) last = i;
    }
    return last;
}

// Indices of the marked units.
void emit(const unsigned char* marks, unsigned char wanted, int64_t n, int64_t* out) {
    for (int64_t i = 0; i < n; ++i) {
        if (marks[i] == wanted) *out++ = i;
    }
}

// left has the probabilities of the units that are not drawn yet, 0 for the others.
void brewer_row(const double* probs, const double* u, int64_t n, int64_t k, double* left, double* weights, double* sums,
                unsigned char* drawn, int64_t* out) {
    int64_t certain = 0;
    for (int64_t i = 0; i < n; ++i) {
        drawn[i] = probs[i] >= 1;
        left[i] = drawn[i] ? 0 : probs[i];
        certain += drawn[i];
    }
    double gone = 0;
    for (int64_t step = 0; step < k - certain; ++step) {
        const double total = loops().weigh(left, n, gone, double(k - certain - step), weights, sums);
        int64_t next = -1;
        if (total > 0) {
            double level = total * u[step];
            if (!(level < total)) level = std::nextafter(total, 0.0);
            next = search(weights, sums, n, level);
        }
        if (next < 0) {  // rounding left fewer than k units with π > 0
            for (int64_t i = 0; i < n; ++i) {
                if (!drawn[i] && (next < 0 || probs[i] > probs[next])) next = i;
            }
        }
        gone += 1 - probs[next];
        drawn[next] = 1;
        left[next] = 0;
    }
    emit(drawn, 1, n, out);
}

// The steps of an elimination from probabilities in increasing order, as _elimination.py has them.
struct Plan {
    double *sums, *q, *c, *w;
    int64_t *release, *released;
};

void plan_row(const double* pi, int64_t n, int64_t k, const Plan& plan) {
    const int64_t steps = n - k;
    int64_t impossible = 0;
    while (impossible < n && pi[impossible] <= 0) ++impossible;
    double sum = 0, bound = INFINITY;
    for (int64_t i = 0; i < n; ++i) {
        sum += pi[i];
        plan.sums[i] = sum;
        if (pi[i] > 0) {
            const double mine = double(n - 1 - i) + sum / pi[i];
            bound = mine < bound ? mine : bound;
        }
        int64_t at = bound < 4e18 ? n - int64_t(std::ceil(bound)) : -1;
        at = at < -1 ? -1 : at > steps - 1 ? steps - 1 : at;
        at = at > impossible ? at : impossible;
        plan.release[i] = pi[i] <= 0 ? i : pi[i] >= 1 ? steps : at;
    }
    int64_t count = 0;
    double before = 0;
    for (int64_t t = 0; t < steps; ++t) {
        while (count < n && plan.release[count] <= t) ++count;
        plan.released[t] = count;
        const double total = plan.sums[count > 0 ? count - 1 : 0];
        const double c = total > 0 ? double(count - 1 - t) / total : 0;
        const double w = before > 0 ? 1 - c / before : 0;
        plan.c[t] = c;
        plan.w[t] = w < 0 ? 0 : w > 1 ? 1 : w;
        before = c;
    }
    sum = 0;
    for (int64_t i = 0; i < n; ++i) {  // cumulative from here on
        const double q = pi[i] >= 1 ? 0 : 1 - (plan.release[i] < steps ? plan.c[plan.release[i]] : 0) * pi[i];
        sum += q < 0 ? 0 : q > 1 ? 1 : q;
        plan.q[i] = sum;
    }
}

// Where the unit that goes at step t stands.
int64_t slot(const Plan& plan, int64_t t, double u) {
    const int64_t before = t > 0 ? plan.released[t - 1] : 0, released = plan.released[t];
    const double first = before > 0 ? plan.q[before - 1] : 0, last = released > 0 ? plan.q[released - 1] : 0;
    const double w = plan.w[t], pool = w * double(before - t), v = u * (pool + (last - first));
    if (v < pool) {
        const int64_t at = t + int64_t(v / w);
        return at < before - 1 ? at : before - 1;
    }
    const double target = first + v - pool;
    int64_t low = before, high = released - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (plan.q[middle] > target) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

}  // namespace

bool brewer(const double* probs, const double* u, int64_t* indices, int64_t draws, int64_t rows, int64_t n, int64_t k,
            int threads) {
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(draws * rows * n, threads), draws * rows, [&](int64_t begin, int64_t end) {
        double* memory = static_cast<double*>(std::malloc(size_t(4 * n + 8) * sizeof(double)));
        if (memory == nullptr) {
            enough_memory = false;
            return;
        }
        for (int64_t row = begin; row < end; ++row) {
            brewer_row(probs + row % rows * n, u + row * k, n, k, memory, memory + n, memory + 2 * n,
                       reinterpret_cast<unsigned char*>(memory + 3 * n + 2), indices + row * k);
        }
        std::free(memory);
    });
    return enough_memory;
}

bool eliminate(const double* sorted, const int64_t* order, const double* u, bool kept, int64_t* indices, int64_t draws,
               int64_t rows, int64_t n, int64_t k, int threads) {
    std::atomic<bool> enough_memory{true};
    const int64_t steps = n - k, width = kept ? k : steps;
    parallel_ranges(useful_threads(draws * rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        double* memory = static_cast<double*>(std::malloc(size_t(8 * n + 8) * sizeof(double)));
        if (memory == nullptr) {
            enough_memory = false;
            return;
        }
        const auto integers = [&](int64_t at) { return reinterpret_cast<int64_t*>(memory + at * n); };
        const Plan plan{memory, memory + n, memory + 2 * n, memory + 3 * n, integers(4), integers(5)};
        int64_t* units = integers(6);
        unsigned char* gone = reinterpret_cast<unsigned char*>(memory + 7 * n);
        for (int64_t row = begin; row < end; ++row) {
            plan_row(sorted + row * n, n, k, plan);
            for (int64_t draw = 0; draw < draws; ++draw) {
                const int64_t at = draw * rows + row;
                for (int64_t i = 0; i < n; ++i) units[i] = order[row * n + i];
                std::memset(gone, 0, size_t(n));
                for (int64_t t = 0; t < steps; ++t) {
                    const int64_t from = slot(plan, t, u[at * steps + t]), unit = units[from];
                    units[from] = units[t];
                    gone[unit] = 1;
                }
                emit(gone, kept ? 0 : 1, n, indices + at * width);
            }
        }
        std::free(memory);
    });
    return enough_memory;
}

}  // namespace khot
