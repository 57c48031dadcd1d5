// The Jacobian product of a gated top-k: y_i = F((x_i + c)/τ) with c such that Σ y = k.
//
//     out_i = (w_i / τ) (g_i − m),    m = Σ w g / Σ w,    w = F'((x_i + c)/τ)
//
// The Jacobian is symmetric, so this serves backward and forward mode alike. w is a function of a saved state. For
// the logistic and the Laplace gate that is the residual r, the signed distance of y to the nearer of 0 and 1,
// because |r|(1 − |r|) and |r| keep their digits where 1 − y has lost them all; for the sparse gate it is y, and for the normal
// gate its argument. `power` is the sparse gate of a norm q < 2, with w = y^(2−q)/(q − 1) where 0 < y < 1.
//
// `logistic_weight` is the logistic gate without a residual: w = y − y² up to y = 15/16, and above that, for the few
// entries where this has lost digits, w = ut/(u + t)² from the score and the threshold of the row: see sigmoid_topk.cpp.
//
// An entry with w = 0 adds nothing to the sums and gets exactly 0, whatever its g: the gradient at a
// masked entry may be inf or NaN, and must not spoil its row. A row with Σ w = 0 has m = 0.
#include <limits>

#include "kernels.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

// Rows up to SHORT elements are summed in groups, so that what is done once per row is done for many at a time.
// A group stays in the nearest cache.
constexpr int64_t SHORT = 128, GROUP_ELEMENTS = 2048;
constexpr int GROUP = 16;

// A row, as far as its products need it; the last four for `logistic_weight` alone.
template <typename real>
struct Piece {
    const real *state, *grad;
    real scale;     // 1/τ, and the constant factor of w
    real exponent;  // 2 − q: see `power`
    const real* x;
    real anchor, t, rate;
};

// All rows. mean may be null.
template <typename real>
struct JacobianRows {
    const real *state, *grad, *temperature;
    int64_t temperature_stride;
    real *out, *mean;
    int64_t n;
    double norm;                // 2 but for `power`
    const real *x, *threshold;  // null but for `logistic_weight`

    Piece<real> operator[](int64_t r) const {
        Piece<real> row = {};
        read(r, &row, false);
        return row;
    }

    // Field by field, since what was written in pieces is slow to read as a whole. t is 0 in a row that needed no
    // root: no score can move its weights.
    void read(int64_t r, Piece<real>* row, bool knows_temperature) const {
        row->state = state + r * n;
        row->grad = grad + r * n;
        if (threshold != nullptr) {
            row->x = x + r * n;
            row->anchor = threshold[2 * r];
            row->t = threshold[2 * r + 1];
        }
        if (knows_temperature) return;
        const real tau = temperature[r * temperature_stride], scale = real(1 / (norm - 1)) / tau;
        const real largest = std::numeric_limits<real>::max();
        row->scale = scale < largest ? scale : largest;  // inf · 0 is NaN
        row->exponent = real(2 - norm);
        row->rate = rate_of(tau);
    }
};

struct SlopeSums {
    double w, wg;

    void add(const SlopeSums& other) {
        w += other.w;
        wg += other.wg;
    }
    double mean() const { return w == 0 ? 0 : wg / w; }
};

template <typename real>
struct GateJacobianTable {
    void (*rows)(const JacobianRows<real>& all, int64_t begin, int64_t end);
    // The two passes over the entries of a row from begin to end.
    SlopeSums (*sums)(const Piece<real>& row, int64_t begin, int64_t end);
    void (*write)(const Piece<real>& row, real mean, real* out, int64_t begin, int64_t end);
};

template <typename real>
struct GateJacobianTables {
    GateJacobianTable<real> of[6];  // by GateKind
};

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
real long_row(const GateJacobianTable<real>& kernel, const Piece<real>& row, real* out, int64_t n, int threads) {
    const Parts parts(n);
    SlopeSums of_part[MAX_PARTS];
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
            of_part[p] = kernel.sums(row, parts.begin(p), parts.begin(p) + parts.length(p));
        }
    });
    SlopeSums total = {};
    for (int64_t p = 0; p < parts.count; ++p) total.add(of_part[p]);
    const real mean = real(total.mean());
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        kernel.write(row, mean, out, parts.begin(begin), parts.begin(end - 1) + parts.length(end - 1));
    });
    return mean;
}

}  // namespace

template <typename real>
void gate_jacobian(GateKind gate, double norm, const real* state, const real* x, const real* threshold,
                   const real* grad, const real* temperature, int64_t temperature_stride, real* out, real* mean,
                   int64_t rows, int64_t n, int threads) {
    const GateJacobianTable<real>& kernel = tables(real()).of[int(gate)];
    const JacobianRows<real> all = {state, grad, temperature, temperature_stride, out, mean, n, norm, x, threshold};
    threads = useful_threads(rows * n, threads);
    if (rows < threads && n >= LONG_ROW) {
        for (int64_t row = 0; row < rows; ++row) {
            const real found = long_row(kernel, all[row], out + row * n, n, threads);
            if (mean != nullptr) mean[row] = found;
        }
        return;
    }
    parallel_ranges(threads, rows, [&](int64_t begin, int64_t end) { kernel.rows(all, begin, end); });
}

template void gate_jacobian(GateKind, double, const float*, const float*, const float*, const float*, const float*, int64_t,
                            float*, float*, int64_t, int64_t, int);
template void gate_jacobian(GateKind, double, const double*, const double*, const double*, const double*, const double*,
                            int64_t, double*, double*, int64_t, int64_t, int);

}  // namespace khot
