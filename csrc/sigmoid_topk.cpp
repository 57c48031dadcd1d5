// Sigmoid top-k: y_i = σ((x_i + c)/τ) with c such that Σ y = k.
//
// In the exponential domain, u_i = exp((x_i − anchor)/τ), a gate is y_i = u_i/(u_i + t): one exponential per
// element for the whole search, then one division per element and step for the unknown t.
//
// The fast path: the anchor is the threshold that the row would have if it were Gaussian, from the mean and
// variance of (a sample of) it, or, if its spread is too large for that, lies near its ⌈k⌉-th largest score. One
// evaluation there, fused with the exponentials, sums powers of the weights, of which Padé approximants make the root:
// see sigmoid_start.inl. Where that is not certain to all digits, Halley's method on Σy − k goes on from it.
//
// The sure path, for budgets at their ends, and whenever the fast one does not converge (infinities, NaN, crowds):
// anchor at the ⌈k⌉-th largest score, or for an integer k in the middle between it and the next, and search within
// a bracket on a function that is nearly linear whatever the scores are. The mathematics is in
// src/khot/relaxations/threshold/_solver.py, which does the same in torch operations.
#include "kernels.h"
#include "sigmoid_fast.h"
#include "sigmoid_sure.h"

#define KHOT_KERNEL_BODY "sigmoid_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const SigmoidTable<float>& table(float) { return KHOT_PICK(f32::sigmoid_table); }
const SigmoidTable<double>& table(double) { return KHOT_PICK(f64::sigmoid_table); }

// Those of rows not found are overwritten by the sure path.
template <typename real>
void keep_thresholds(const SearchGroup<real>& group, int count, real* threshold) {
    if (threshold == nullptr) return;
    for (int r = 0; r < count; ++r) {
        threshold[2 * r] = group.anchor[r];
        threshold[2 * r + 1] = group.t[r];
    }
}

// Each of these leaves its rows complete, and is false when there was not enough memory.
// Masked scores are written to where u, and then y, will stand.

// A long row, in parts that do not depend on the number of threads: nor does, then, any bit of the result.
template <typename real>
bool long_row(const SigmoidTable<real>& kernel, const Rows<real>& rows, int64_t r, SearchGroup<real>& group,
              Scratch<real>& scratch, int threads) {
    const Row<real> row = rows[r];
    Row<real> masked = row;
    real* spare = row.y;
    if (row.mask != nullptr) {
        apply_mask(row.x, row.mask, row.n, row.y);
        masked.x = row.y;
        spare = scratch.get();
        if (spare == nullptr) return false;
    }
    set_group(rows, r, 1, group);
    search_in_parts(kernel, masked, group, spare, threads);
    if (group.open[0] != 0) {
        if (scratch.get() == nullptr) return false;
        sure_row(kernel, row, scratch.get());
        return true;
    }
    keep_thresholds(group, 1, row.threshold);
    if (row.unfinished) return true;
    const Parts parts(row.n);
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        const int64_t at = parts.begin(begin), stop = parts.begin(end - 1) + parts.length(end - 1);
        real* y = row.y + at;
        kernel.write(y, group.t[0], y, row.state == nullptr ? nullptr : row.state + at, stop - at);
    });
    return true;
}

// Rows from begin to end, group by group.
template <typename real>
bool short_rows(const SigmoidTable<real>& kernel, const Rows<real>& rows, int64_t begin, int64_t end,
                SearchGroup<real>& group, Scratch<real>& scratch) {
    const int64_t n = rows.n;
    const int size = group_size(n);
    const bool all_alike = rows.k_stride == 0 && rows.temperature_stride == 0;
    if (rows.mask != nullptr && scratch.get() == nullptr) return false;
    for (int64_t first = begin; first < end; first += size) {
        const int count = int(end - first < size ? end - first : size);
        if (first == begin || !all_alike) set_group(rows, first, count, group);
        const real* x = rows.x + first * n;
        real *u = rows.y + first * n, *spare = u;
        real* residual = rows.state == nullptr ? nullptr : rows.state + first * n;
        if (rows.mask != nullptr) {
            apply_mask(x, rows.mask + first * n, count * n, u);
            x = u;
            spare = scratch.get();
        }
        search(kernel, x, n, count, group, spare, rows.mask == nullptr ? n : 0,
               [&](const int* busy, int left, int round) {
                   if (round == 0) {
                       kernel.start_rows(x, u, n, count, group);
                   } else {
                       kernel.evaluate_rows(u, n, busy, left, group);
                   }
               });
        if (!rows.unfinished) kernel.write_rows(u, residual, n, count, group);
        keep_thresholds(group, count, rows[first].threshold);
        for (int r = 0; r < count; ++r) {
            if (group.open[r] == 0) continue;
            if (scratch.get() == nullptr) return false;
            sure_row(kernel, rows[first + r], scratch.get());
        }
    }
    return true;
}

template <typename real>
bool solve(const Rows<real>& all, int64_t rows, int threads) {
    const int64_t n = all.n;
    if (n == 0) return true;
    const SigmoidTable<real>& kernel = table(real());
    threads = useful_threads(rows * n, threads);
    const bool share_rows = rows < threads && n >= LONG_ROW;  // between threads
    bool enough_memory = true;
    parallel_ranges(share_rows ? 1 : threads, rows, [&](int64_t begin, int64_t end) {
        SearchGroup<real> group;
        Scratch<real> scratch(n);
        bool enough = true;
        if (n < LONG_ROW) {
            enough = short_rows(kernel, all, begin, end, group, scratch);
        } else {
            for (int64_t r = begin; enough && r < end; ++r) {
                enough = long_row(kernel, all, r, group, scratch, share_rows ? threads : 1);
            }
        }
        if (!enough) enough_memory = false;  // every writer writes the same
    });
    return enough_memory;
}

}  // namespace

template <typename real>
bool sigmoid_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                  const real* temperature, int64_t temperature_stride, real* y, real* residual, real* threshold,
                  int64_t rows, int64_t n, int threads) {
    const Rows<real> all = {x, mask, k, k_stride, temperature, temperature_stride, y, residual, n, threshold};
    return solve(all, rows, threads);
}

template <typename real>
bool sigmoid_thresholds(const real* x, const double* k, int64_t k_stride, const real* temperature,
                        int64_t temperature_stride, real* u, real* threshold, int64_t rows, int64_t n, int threads) {
    const Rows<real> all = {x, nullptr, k, k_stride, temperature, temperature_stride, u, nullptr, n, threshold, true};
    return solve(all, rows, threads);
}

template <typename real>
void sigmoid_weights(real* u, real t, int64_t count) {
    table(real()).write(u, t, u, nullptr, count);
}

template bool sigmoid_topk(const float*, const unsigned char*, const double*, int64_t, const float*, int64_t,
                           float*, float*, float*, int64_t, int64_t, int);
template bool sigmoid_topk(const double*, const unsigned char*, const double*, int64_t, const double*, int64_t,
                           double*, double*, double*, int64_t, int64_t, int);
template bool sigmoid_thresholds(const float*, const double*, int64_t, const float*, int64_t, float*, float*, int64_t, int64_t,
                                 int);
template bool sigmoid_thresholds(const double*, const double*, int64_t, const double*, int64_t, double*, double*, int64_t,
                                 int64_t, int);
template void sigmoid_weights(float*, float, int64_t);
template void sigmoid_weights(double*, double, int64_t);

}  // namespace khot
