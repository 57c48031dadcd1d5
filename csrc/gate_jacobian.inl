// Body of gate_jacobian.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"

// Where w = 0 the value is chosen by a select, not by the product, since 0 * inf is NaN. grad is read
// before and unconditionally: a read under a condition becomes a masked load, three times slower here.
static void sums(const real* residual, const real* grad, int64_t n, double* sum_w, double* sum_wg) {
    double total_w = 0, total_wg = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        real block_w = 0, block_wg = 0;
#pragma omp simd reduction(+ : block_w, block_wg)
        for (int64_t i = begin; i < end; ++i) {
            const real g = grad[i], r = real(__builtin_fabs(residual[i])), w = r * (1 - r);
            block_w += w;
            block_wg += w * (w == 0 ? real(0) : g);
        }
        total_w += block_w;
        total_wg += block_wg;
    }
    *sum_w = total_w;
    *sum_wg = total_wg;
}

static void write(const real* residual, const real* grad, real scale, real mean, real* __restrict out,
                  int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        const real g = grad[i], r = real(__builtin_fabs(residual[i])), w = r * (1 - r);
        out[i] = w == 0 ? real(0) : (w * scale) * (g - mean);
    }
}

static real mean_of(const real* residual, const real* grad, int64_t n) {
    const Parts parts(n);
    double sum_w = 0, sum_wg = 0;
    for (int64_t p = 0; p < parts.count; ++p) {
        double part_w, part_wg;
        sums(residual + parts.begin(p), grad + parts.begin(p), parts.length(p), &part_w, &part_wg);
        sum_w += part_w;
        sum_wg += part_wg;
    }
    return real(weighted_mean(sum_w, sum_wg));
}

// The means of a group of short rows.
static void means_of(const real* residual, const real* grad, real* mean, int count, int64_t n) {
    RowSums<2, GROUP> s;
    for (int r = 0; r < count; ++r) {
        vec sum_w{}, sum_wg{};
        const auto add = [&](vec signed_distance, vec g) __attribute__((always_inline)) {
            const vec distance = signed_distance < 0 ? -signed_distance : signed_distance;
            const vec w = distance * (1 - distance);
            sum_w += w;
            sum_wg += w * (w == 0 ? vec{} : g);
        };
        const real *row_residual = residual + r * n, *row_grad = grad + r * n;
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) add(load(row_residual + i), load(row_grad + i));
        if (i < n) add(load_tail(row_residual + i, n - i, 0), load_tail(row_grad + i, n - i, 0));
        s.lanes[0][r] = sum_w;
        s.lanes[1][r] = sum_wg;
    }
    s.add_lanes(count);
    for (int r = 0; r < count; ++r) mean[r] = real(weighted_mean(double(s.sums[0][r]), double(s.sums[1][r])));
}

static void rows(const real* residual, const real* grad, const real* temperature, int64_t temperature_stride,
                 real* out, real* mean, int64_t rows, int64_t n) {
    const int64_t fitting = GROUP_ELEMENTS / (n + 1), size = n > SHORT ? 1 : (fitting < GROUP ? fitting : GROUP);
    for (int64_t first = 0; first < rows; first += size) {
        const int count = int(rows - first < size ? rows - first : size);
        if (size > 1) {
            means_of(residual + first * n, grad + first * n, mean + first, count, n);
        } else {
            mean[first] = mean_of(residual + first * n, grad + first * n, n);
        }
        for (int64_t r = first; r < first + count; ++r) {
            write(residual + r * n, grad + r * n, 1 / temperature[r * temperature_stride], mean[r], out + r * n, n);
        }
    }
}

static const GateJacobianTable<real> gate_jacobian_table = {rows, sums, write};
