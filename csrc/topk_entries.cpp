// The k largest of each row: where they are, what they are, and their weights. No dense row leaves the thread.
//
// A selection finds the k-th largest value; one more pass collects the places of what is above it and, from the left,
// as many of those equal to it as are left of k; these few are sorted. The weights are those of sigmoid_topk(), whose
// exponentials, of a few rows at a time, stand in memory that stays in the cache, and whose last pass is left out.
//
// The order is that of a stable sort from the largest down: ties by index, NaN first, −inf (excluded, masked) last.
// An excluded entry is selected only where there is nothing else left; then its weight and its value are 0.
#include <cmath>

#include "kernels.h"
#include "kth_largest.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

// Rows are worked on together while they have no more than this many elements.
constexpr int64_t TOGETHER = 4096;

// Rows up to this length are sorted whole, which costs no more than a selection.
constexpr int64_t SORTED = 128;

// This many values are compared at a time, where any of the next ones belongs to the k largest.
constexpr int64_t CHUNK = 16;

// How many to take of the values that are NaN, and of those equal to the threshold; all above it are taken.
struct Shares {
    int64_t nans, ties;
};

template <typename real>
struct EntriesTable {
    // Writes the places of k values, in their order; false if that is not how many there are, as with a NaN too many.
    bool (*collect)(const real* x, int64_t n, real threshold, Shares shares, int64_t k, int64_t* places);
    // copy = x, with −inf for NaN; returns how many these are.
    int64_t (*without_nan)(const real* x, int64_t n, real* copy);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "topk_entries.inl"
#include "dispatch.h"

namespace khot {
namespace {

const EntriesTable<float>& table(float) { return KHOT_PICK(f32::entries_table); }
const EntriesTable<double>& table(double) { return KHOT_PICK(f64::entries_table); }

// The places of the k largest of a row, in their order. `scratch` and `copy` hold n reals each.
template <typename real>
void find_places(const EntriesTable<real>& kernel, const real* x, int64_t n, int64_t k, real* scratch, real* copy,
                 int64_t* places) {
    int64_t above;
    if (k == n) {
        for (int64_t i = 0; i < n; ++i) places[i] = i;
        return;
    }
    const real threshold = kth_largest(x, n, k, scratch, &above);
    if (kernel.collect(x, n, threshold, {0, k - above}, k, places)) return;
    const int64_t nans = kernel.without_nan(x, n, copy);
    if (nans >= k) {
        kernel.collect(x, n, real(HUGE_VAL), {k, 0}, k, places);
        return;
    }
    const real next = kth_largest(copy, n, k - nans, scratch, &above);
    kernel.collect(x, n, next, {nans, k - nans - above}, k, places);
}

// All entries, and the same of a few of the rows.
template <typename real>
struct Entries {
    int64_t* indices;
    real *weights, *values;
    int64_t k;

    Entries from(int64_t row) const { return {indices + row * k, weights + row * k, values + row * k, k}; }
};

// Brings the places found in `count` rows into their final order, with their values.
template <typename real>
bool arrange(const real* x, int64_t n, int64_t count, bool by_position, const int64_t* places, real* picked, int64_t* order,
             const Entries<real>& out) {
    const int64_t k = out.k;
    for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = r * k; j < (r + 1) * k; ++j) picked[j] = x[r * n + places[j]];
    }
    if (!by_position) {
        if (!argsort(picked, true, out.values, order, count, k, 1)) return false;
    } else {
        for (int64_t r = 0; r < count; ++r) {  // as they stand, but those that are excluded last
            int64_t found = r * k;
            for (int excluded = 0; excluded < 2; ++excluded) {
                for (int64_t j = 0; j < k; ++j) {
                    if ((picked[r * k + j] == -real(HUGE_VAL)) == (excluded == 1)) order[found++] = j;
                }
            }
            for (int64_t j = 0; j < k; ++j) out.values[r * k + j] = picked[r * k + order[r * k + j]];
        }
    }
    for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = 0; j < k; ++j) out.indices[r * k + j] = places[r * k + order[r * k + j]];
    }
    return true;
}

// The same from a sort of whole rows, which are short; `order` has room for n of each.
template <typename real>
bool arrange_sorted(const real* x, int64_t n, int64_t count, int64_t* order, const Entries<real>& out) {
    if (!argsort(x, true, static_cast<real*>(nullptr), order, count, n, 1)) return false;
    for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = 0; j < out.k; ++j) {
            out.indices[r * out.k + j] = order[r * n + j];
            out.values[r * out.k + j] = x[r * n + order[r * n + j]];
        }
    }
    return true;
}

// What the rows have in common.
template <typename real>
struct Problem {
    const real* x;
    const unsigned char* mask;
    const real* temperature;  // or null: the weights are ones
    int64_t temperature_stride, n;
    bool by_position;
    real* threshold;  // or null: two numbers for each row, as sigmoid_topk() leaves them
};

// Rows from begin to end, a few at a time. False when there was not enough memory.
template <typename real>
bool entries_of(const Problem<real>& problem, const Entries<real>& all, int64_t begin, int64_t end, int threads) {
    const EntriesTable<real>& kernel = table(real());
    const int64_t n = problem.n, k = all.k, fitting = n < TOGETHER ? TOGETHER / n : 1;
    const int64_t together = end - begin < fitting ? end - begin : fitting;
    const bool sorted = n <= SORTED && !problem.by_position;
    const double budget = double(k);
    Scratch<real> dense(together * n), scratch(n), masked(together * n), picked(together * k), thresholds(2 * together);
    Scratch<int64_t> places(together * k), order(together * (sorted ? n : k));
    if (dense.get() == nullptr || scratch.get() == nullptr || picked.get() == nullptr || places.get() == nullptr ||
        order.get() == nullptr || thresholds.get() == nullptr || (problem.mask != nullptr && masked.get() == nullptr)) {
        return false;
    }
    for (int64_t first = begin; first < end; first += together) {
        const int64_t count = end - first < together ? end - first : together;
        const Entries<real> out = all.from(first);
        real* threshold = problem.threshold == nullptr ? thresholds.get() : problem.threshold + 2 * first;
        const real* x = problem.x + first * n;
        if (problem.mask != nullptr) {
            apply_mask(x, problem.mask + first * n, count * n, masked.get());
            x = masked.get();
        }
        for (int64_t r = 0; r < count && !sorted; ++r) {
            find_places(kernel, x + r * n, n, k, scratch.get(), dense.get(), places.get() + r * k);
        }
        if (!(sorted ? arrange_sorted(x, n, count, order.get(), out)
                     : arrange(x, n, count, problem.by_position, places.get(), picked.get(), order.get(), out))) {
            return false;
        }
        if (problem.temperature != nullptr) {
            const real* temperature = problem.temperature + first * problem.temperature_stride;
            if (!sigmoid_thresholds<real>(x, &budget, 0, temperature, problem.temperature_stride, dense.get(), threshold,
                                          count, n, threads)) {
                return false;
            }
            for (int64_t r = 0; r < count; ++r) {
                real* weights = out.weights + r * k;
                for (int64_t j = 0; j < k; ++j) weights[j] = dense.get()[r * n + out.indices[r * k + j]];
                if (threshold[2 * r + 1] > 0) sigmoid_weights(weights, threshold[2 * r + 1], k);
            }
        }
        for (int64_t r = 0; r < count; ++r) {
            bool nan = false;  // in the row: it makes all weights NaN
            for (int64_t j = r * k; j < (r + 1) * k; ++j) nan |= out.values[j] != out.values[j];
            const real hard = nan ? real(NAN) : real(1);
            for (int64_t j = r * k; j < (r + 1) * k; ++j) {
                const bool exists = out.values[j] != -real(HUGE_VAL);
                if (problem.temperature == nullptr) out.weights[j] = hard;
                out.weights[j] = exists ? out.weights[j] : real(0);
                out.values[j] = exists ? out.values[j] : real(0);
            }
        }
    }
    return true;
}

}  // namespace

template <typename real>
bool topk_entries(const real* x, const unsigned char* mask, int64_t k, const real* temperature, int64_t temperature_stride,
                  bool by_position, int64_t* indices, real* weights, real* values, real* threshold, int64_t rows, int64_t n,
                  int threads) {
    if (k == 0) return true;
    const Problem<real> problem = {x, mask, temperature, temperature_stride, n, by_position, threshold};
    const Entries<real> all = {indices, weights, values, k};
    threads = useful_threads(rows * n, threads);
    const bool share_rows = rows < threads && n >= LONG_ROW;  // between threads
    bool enough_memory = true;
    parallel_ranges(share_rows ? 1 : threads, rows, [&](int64_t begin, int64_t end) {
        if (!entries_of(problem, all, begin, end, share_rows ? threads : 1)) {
            enough_memory = false;  // every writer writes the same
        }
    });
    return enough_memory;
}

template bool topk_entries(const float*, const unsigned char*, int64_t, const float*, int64_t, bool, int64_t*, float*, float*,
                           float*, int64_t, int64_t, int);
template bool topk_entries(const double*, const unsigned char*, int64_t, const double*, int64_t, bool, int64_t*, double*,
                           double*, double*, int64_t, int64_t, int);

}  // namespace khot
