// The Jacobian product of sigmoid top-k in bfloat16 and float16: see gate_jacobian.cpp for the formula.
//
// Nothing is kept from the forward pass but the scores, which lose nothing by becoming floats, and two floats for each row:
// the weights were rounded, so their slopes are computed anew. They stand in memory of their own between the two passes,
// and that, unless one row alone is long, in the nearest cache.
#include "kernels.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

// Rows up to SUM_BLOCK elements are worked on in groups of so many rows and about so many elements.
constexpr int GROUP = 16;
constexpr int64_t GROUP_ELEMENTS = 2048;

// How many slopes are kept of a row: two registers at a time of any instruction set.
inline int64_t whole_pairs(int64_t n) { return (n + 31) / 32 * 32; }

// Σw and Σwg.
struct SlopeSums {
    double w, wg;

    double mean() const { return w == 0 ? 0 : wg / w; }
    // Whether all they are of is finite, which a row without slopes does not tell; and beside such a mean no finite g
    // overflows.
    bool harmless() const { return w > 0 && mean() < 1e30 && mean() > -1e30; }
};

// What the slopes of a row need of it: see slope_of().
struct HalfLine {
    float anchor, factor, shift;
    bool still;  // no score can move a weight of this row
};

template <typename real>
struct HalfJacobianTable {
    void (*rows)(const uint16_t* x, const uint16_t* g, const HalfLine* lines, real scale, real* w, uint16_t* out, int64_t n,
                 int count);
    // The two passes over part of a long row.
    SlopeSums (*slopes)(bool careful, const uint16_t* x, const uint16_t* g, const HalfLine& row, real* w, int64_t n);
    void (*products)(bool careful, const real* w, const uint16_t* g, real scale, real mean, uint16_t* out, int64_t n);
};

template <typename real>
struct HalfJacobianTables {
    void (*set_lines)(const real* threshold, real rate, int count, HalfLine* lines);
    HalfJacobianTable<real> of[2];  // by HalfKind
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "half_jacobian.inl"
#include "dispatch.h"

namespace khot {
namespace {

const HalfJacobianTables<float>& tables() { return KHOT_PICK(f32::half_jacobian_tables); }

// One row, in parts that do not depend on the number of threads.
void long_row(const HalfJacobianTable<float>& kernel, const uint16_t* x, const uint16_t* grad, const HalfLine& line,
              float scale, float* w, uint16_t* out, int64_t n, int threads) {
    const Parts parts(n);
    const auto sums = [&](bool careful) {
        SlopeSums of_part[MAX_PARTS], total = {};
        parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
            for (int64_t p = begin; p < end; ++p) {
                const int64_t at = parts.begin(p);
                of_part[p] = kernel.slopes(careful, x + at, grad + at, line, w + at, parts.length(p));
            }
        });
        for (int64_t p = 0; p < parts.count; ++p) {
            total.w += of_part[p].w;
            total.wg += of_part[p].wg;
        }
        return total;
    };
    SlopeSums total = sums(false);
    const bool careful = !total.harmless();
    if (careful) total = sums(true);
    const float mean = float(total.mean());
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        const int64_t at = parts.begin(begin), stop = parts.begin(end - 1) + parts.length(end - 1);
        kernel.products(careful, w + at, grad + at, scale, mean, out + at, stop - at);
    });
}

}  // namespace

bool sigmoid_jacobian_half(HalfKind kind, const uint16_t* x, const float* threshold, const uint16_t* grad,
                           float temperature, uint16_t* out, int64_t rows, int64_t n, int threads) {
    if (n == 0) return true;
    const HalfJacobianTables<float>& common = tables();
    const HalfJacobianTable<float>& kernel = common.of[int(kind)];
    const float rate = rate_of(temperature), scale = 1 / temperature;
    threads = useful_threads(rows * n, threads);
    const bool share_rows = rows < threads && n >= LONG_ROW;  // between threads
    const int64_t fitting = GROUP_ELEMENTS / n, size = n > SUM_BLOCK ? 1 : (fitting < GROUP ? fitting : GROUP);
    bool enough_memory = true;
    parallel_ranges(share_rows ? 1 : threads, rows, [&](int64_t begin, int64_t end) {
        Scratch<float> slopes(size * whole_pairs(n));
        float* w = slopes.get();
        if (w == nullptr) {
            enough_memory = false;  // every writer writes the same
            return;
        }
        for (int64_t first = begin; first < end; first += size) {
            const int count = int(end - first < size ? end - first : size);
            const int64_t at = first * n;
            HalfLine lines[GROUP];
            common.set_lines(threshold + 2 * first, rate, count, lines);
            if (n > SUM_BLOCK) {
                long_row(kernel, x + at, grad + at, lines[0], scale, w, out + at, n, share_rows ? threads : 1);
            } else {
                kernel.rows(x + at, grad + at, lines, scale, w, out + at, n, count);
            }
        }
    });
    return enough_memory;
}

}  // namespace khot
