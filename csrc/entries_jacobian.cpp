// The Jacobian product of the weights that topk_entries() gives, with a gradient g at the k entries alone:
//
//     out_i = (w_i / τ) (g_i − m),    m = Σ w g / Σ w,    w_i = ut/(u + t)², u = exp((x_i − anchor)/τ)
//
// with g = 0 at all others; anchor and t of each row are those that topk_entries() left. Nothing dense is read but the
// scores, nothing dense is written but the result.
#include "kernels.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

template <typename real>
struct EntriesJacobianTable {
    // w = the slopes, and their sum.
    double (*slopes)(const real* x, const unsigned char* mask, real anchor, real t, real rate, real* w, int64_t n);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "entries_jacobian.inl"
#include "dispatch.h"

namespace khot {
namespace {

const EntriesJacobianTable<float>& table(float) { return KHOT_PICK(f32::entries_jacobian_table); }
const EntriesJacobianTable<double>& table(double) { return KHOT_PICK(f64::entries_jacobian_table); }

}  // namespace

template <typename real>
bool entries_jacobian(const real* x, const unsigned char* mask, const real* threshold, const int64_t* indices,
                      const real* grad, const real* temperature, int64_t temperature_stride, real* out, int64_t rows,
                      int64_t n, int64_t k, int threads) {
    const EntriesJacobianTable<real>& kernel = table(real());
    bool enough_memory = true;
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        Scratch<real> products(k);
        if (k > 0 && products.get() == nullptr) {
            enough_memory = false;  // every writer writes the same
            return;
        }
        for (int64_t r = begin; r < end; ++r) {
            const int64_t* places = indices + r * k;
            const real *g = grad + r * k, tau = temperature[r * temperature_stride], scale = 1 / tau;
            real *w = out + r * n, *product = products.get();
            const double total = kernel.slopes(x + r * n, mask == nullptr ? nullptr : mask + r * n, threshold[2 * r],
                                               threshold[2 * r + 1], rate_of(tau), w, n);
            double with_g = 0;
            for (int64_t j = 0; j < k; ++j) {
                if (w[places[j]] != 0) with_g += double(w[places[j]]) * double(g[j]);
            }
            const real mean = total == 0 ? real(0) : real(with_g / total);
            for (int64_t j = 0; j < k; ++j) {
                const real slope = w[places[j]];
                product[j] = slope == 0 ? real(0) : (slope * scale) * (g[j] - mean);
            }
            for (int64_t i = 0; i < n; ++i) w[i] = w[i] == 0 ? real(0) : (w[i] * scale) * -mean;  // 0 · inf is NaN
            for (int64_t j = 0; j < k; ++j) w[places[j]] = product[j];
        }
    });
    return enough_memory;
}

template bool entries_jacobian(const float*, const unsigned char*, const float*, const int64_t*, const float*,
                               const float*, int64_t, float*, int64_t, int64_t, int64_t, int);
template bool entries_jacobian(const double*, const unsigned char*, const double*, const int64_t*, const double*,
                               const double*, int64_t, double*, int64_t, int64_t, int64_t, int);

}  // namespace khot
