// Hard top-k: out_i = 1 for the k largest of a row, 0 for all others.
//
// Ties go to the lower index; NaN counts as larger than everything, like in torch.topk; −inf and masked
// entries are never selected, so a row may have fewer than k ones.
//
// The k-th largest value is the threshold: everything above it is marked, and as many of those equal to it,
// from the left, as are left of k. The output serves as scratch memory before it is written.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "kth_largest.h"
#include "threads.h"

namespace khot {
namespace {

// While ties may still be marked they are counted, block by block of this length.
constexpr int64_t TIES_BLOCK = 128;

template <typename real>
struct HardTopkTable {
    // out = 1 where x > threshold and at the first `ties` places where x = threshold, else 0. False, with
    // an unfinished output, if there is a NaN.
    bool (*mark)(const real* x, int64_t n, real threshold, int64_t ties, real* out);
    // copy = x, with −inf for NaN and for what the mask (may be null) excludes; counts the allowed NaN.
    int64_t (*copy_allowed)(const real* x, const unsigned char* mask, int64_t n, real* copy);
    // out = 1 at the first `count` allowed NaN.
    void (*mark_nans)(const real* x, const unsigned char* mask, int64_t n, int64_t count, real* out);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "hard_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const HardTopkTable<float>& table(float) { return KHOT_PICK(f32::hard_topk_table); }
const HardTopkTable<double>& table(double) { return KHOT_PICK(f64::hard_topk_table); }

// False, with an unfinished output, if the row has a NaN.
template <typename real>
bool row_without_nan(const HardTopkTable<real>& kernel, const real* x, int64_t n, int64_t k, real* out) {
    if (k <= 0) {
        std::memset(out, 0, size_t(n) * sizeof(real));
        return true;
    }
    const real lowest = std::numeric_limits<real>::lowest();
    if (k < n) {
        int64_t above;
        const real threshold = kth_largest(x, n, k, out, &above);
        if (threshold >= lowest) return kernel.mark(x, n, threshold, k - above, out);
    }
    return kernel.mark(x, n, lowest, n, out);  // everything but −inf
}

template <typename real>
void row_with_nan_or_mask(const HardTopkTable<real>& kernel, const real* x, const unsigned char* mask, int64_t n,
                          int64_t k, real* out, real* copy) {
    const int64_t nans = kernel.copy_allowed(x, mask, n, copy);
    row_without_nan(kernel, copy, n, k - nans, out);
    if (nans > 0) kernel.mark_nans(x, mask, n, k < nans ? k : nans, out);
}

}  // namespace

template <typename real>
bool hard_topk(const real* x, const unsigned char* mask, const int64_t* k, int64_t k_stride, real* out,
               int64_t rows, int64_t n, int threads) {
    const HardTopkTable<real>& kernel = table(real());
    std::atomic<bool> enough_memory{true};
    if (n == 0) return true;
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        real* copy = nullptr;  // for the rows that need one, which most often are none or all
        for (int64_t row = begin; row < end; ++row) {
            const real* x_row = x + row * n;
            const unsigned char* mask_row = mask == nullptr ? nullptr : mask + row * n;
            real* out_row = out + row * n;
            const int64_t k_row = k[row * k_stride];
            if (mask == nullptr && row_without_nan(kernel, x_row, n, k_row, out_row)) continue;
            if (copy == nullptr) copy = static_cast<real*>(std::malloc(size_t(n) * sizeof(real)));
            if (copy == nullptr) {
                enough_memory = false;
                break;
            }
            row_with_nan_or_mask(kernel, x_row, mask_row, n, k_row, out_row, copy);
        }
        std::free(copy);
    });
    return enough_memory;
}

template bool hard_topk(const float*, const unsigned char*, const int64_t*, int64_t, float*, int64_t, int64_t,
                        int);
template bool hard_topk(const double*, const unsigned char*, const int64_t*, int64_t, double*, int64_t, int64_t,
                        int);

}  // namespace khot
