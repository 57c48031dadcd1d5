// The Jacobian product of a gated top-k: y_i = F((x_i + c)/τ) with c such that Σ y = k.
//
//     out_i = (w_i / τ) (g_i − m),    m = Σ w g / Σ w,    w = F'((x_i + c)/τ)
//
// The Jacobian is symmetric, so this serves backward and forward mode alike. w is a function of a saved state. For
// the logistic and the Laplace gate that is the residual r, the signed distance of y to the nearer of 0 and 1,
// because |r|(1 − |r|) and |r| keep their digits where 1 − y has lost them all; for the sparse gate it is y, and for the normal
// gate its argument.
//
// An entry with w = 0 adds nothing to the sums and gets exactly 0, whatever its g: the gradient at a
// masked entry may be inf or NaN, and must not spoil its row. A row with Σ w = 0 has m = 0.
#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

// Rows up to SHORT elements are summed in groups, so that what is done once per row is done for many at a time.
// A group stays in the nearest cache.
constexpr int64_t SHORT = 256, GROUP_ELEMENTS = 2048;
constexpr int GROUP = 16;

template <typename real>
struct GateJacobianTable {
    // Consecutive rows, from first to last.
    void (*rows)(const real* state, const real* grad, const real* temperature, int64_t temperature_stride,
                 real* out, real* mean, int64_t rows, int64_t n);
    // The two passes over a piece of a row; scale is 1/τ.
    void (*sums)(const real* state, const real* grad, int64_t n, double* sum_w, double* sum_wg);
    void (*write)(const real* state, const real* grad, real scale, real mean, real* out, int64_t n);
};

template <typename real>
struct GateJacobianTables {
    GateJacobianTable<real> of[4];  // by GateKind
};

inline double weighted_mean(double sum_w, double sum_wg) { return sum_w == 0 ? 0 : sum_wg / sum_w; }

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "gate_jacobian.inl"
#include "dispatch.h"

namespace khot {
namespace {

const GateJacobianTables<float>& tables(float) { return KHOT_PICK(f32::gate_jacobian_tables); }
const GateJacobianTables<double>& tables(double) { return KHOT_PICK(f64::gate_jacobian_tables); }

// One row by many threads: all sums, then (the end of a parallel region is a barrier) all outputs.
template <typename real>
void long_row(const GateJacobianTable<real>& kernel, const real* state, const real* grad, real scale,
              real* out, real* mean, int64_t n, int threads) {
    const Parts parts(n);
    double part_w[MAX_PARTS], part_wg[MAX_PARTS];
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
            const int64_t at = parts.begin(p);
            kernel.sums(state + at, grad + at, parts.length(p), &part_w[p], &part_wg[p]);
        }
    });
    double sum_w = 0, sum_wg = 0;
    for (int64_t p = 0; p < parts.count; ++p) {
        sum_w += part_w[p];
        sum_wg += part_wg[p];
    }
    *mean = real(weighted_mean(sum_w, sum_wg));
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        const int64_t at = parts.begin(begin), stop = parts.begin(end - 1) + parts.length(end - 1);
        kernel.write(state + at, grad + at, scale, *mean, out + at, stop - at);
    });
}

}  // namespace

template <typename real>
void gate_jacobian(GateKind gate, const real* state, const real* grad, const real* temperature,
                   int64_t temperature_stride, real* out, real* mean, int64_t rows, int64_t n, int threads) {
    const GateJacobianTable<real>& kernel = tables(real()).of[int(gate)];
    threads = useful_threads(rows * n, threads);
    if (rows < threads && n >= LONG_ROW) {
        for (int64_t row = 0; row < rows; ++row) {
            const real scale = 1 / temperature[row * temperature_stride];
            long_row(kernel, state + row * n, grad + row * n, scale, out + row * n, mean + row, n, threads);
        }
        return;
    }
    parallel_ranges(threads, rows, [&](int64_t begin, int64_t end) {
        kernel.rows(state + begin * n, grad + begin * n, temperature + begin * temperature_stride,
                    temperature_stride, out + begin * n, mean + begin, end - begin, n);
    });
}

template void gate_jacobian(GateKind, const float*, const float*, const float*, int64_t, float*, float*, int64_t, int64_t,
                            int);
template void gate_jacobian(GateKind, const double*, const double*, const double*, int64_t, double*, double*, int64_t,
                            int64_t, int);

}  // namespace khot
