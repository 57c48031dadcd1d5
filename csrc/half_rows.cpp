// Sigmoid top-k of bfloat16 and float16: read and written here, computed in float.
//
// Some rows at a time become floats in memory of their own, which stays in a near cache unless one row alone is long.
// The way back is in half_jacobian.cpp.
#include "kernels.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

// So many elements become floats at a time, or one row.
constexpr int64_t AT_ONCE = 8192;

template <typename real>
struct HalfTable {
    void (*widen[2])(const uint16_t* from, real* to, int64_t n);  // by HalfKind
    void (*round[2])(const real* from, uint16_t* to, int64_t n);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "half_rows.inl"
#include "dispatch.h"

namespace khot {
namespace {

const HalfTable<float>& table() { return KHOT_PICK(f32::half_table); }

// compute(first, count, scratch, threads) for all rows, some at a time; `scratch` holds `tensors` times their elements.
// Rows go to threads, or, where there are fewer than threads and they are long, threads to each row.
template <typename Compute>
bool by_some_rows(int64_t rows, int64_t n, int tensors, int threads, const Compute& compute) {
    threads = useful_threads(rows * n, threads);
    const bool share_rows = rows < threads && n >= LONG_ROW;
    const int64_t size = n < AT_ONCE ? AT_ONCE / n : 1;
    bool enough_memory = true;
    parallel_ranges(share_rows ? 1 : threads, rows, [&](int64_t begin, int64_t end) {
        const int64_t most = end - begin < size ? end - begin : size;
        Scratch<float> scratch(most * n * tensors);
        bool enough = scratch.get() != nullptr;
        for (int64_t first = begin; enough && first < end; first += size) {
            enough = compute(first, end - first < size ? end - first : size, scratch.get(), share_rows ? threads : 1);
        }
        if (!enough) enough_memory = false;  // every writer writes the same
    });
    return enough_memory;
}

}  // namespace

bool sigmoid_topk_half(HalfKind kind, const uint16_t* x, double k, float temperature, uint16_t* y, float* threshold,
                       int64_t rows, int64_t n, int threads) {
    if (n == 0) return true;
    const HalfTable<float>& kernel = table();
    return by_some_rows(rows, n, 2, threads, [&](int64_t first, int64_t count, float* scratch, int sharing) {
        const int64_t at = first * n, length = count * n;
        float *scores = scratch, *weights = scratch + length;
        parallel_ranges(sharing, length, [&](int64_t begin, int64_t end) {
            kernel.widen[int(kind)](x + at + begin, scores + begin, end - begin);
        });
        const bool enough = sigmoid_topk<float>(scores, nullptr, &k, 0, &temperature, 0, weights, nullptr,
                                                threshold == nullptr ? nullptr : threshold + 2 * first, count, n, sharing);
        parallel_ranges(sharing, length, [&](int64_t begin, int64_t end) {
            kernel.round[int(kind)](weights + begin, y + at + begin, end - begin);
        });
        return enough;
    });
}

}  // namespace khot
