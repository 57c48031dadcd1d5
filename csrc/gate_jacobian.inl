// Body of gate_jacobian.cpp, compiled for each instruction set and type: see dispatch.h.

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

static void rows(const real* residual, const real* grad, const real* temperature, int64_t temperature_stride,
                 real* out, real* mean, int64_t rows, int64_t n) {
    const Parts parts(n);
    for (int64_t row = 0; row < rows; ++row) {
        double sum_w = 0, sum_wg = 0;
        for (int64_t p = 0; p < parts.count; ++p) {
            double part_w, part_wg;
            sums(residual + parts.begin(p), grad + parts.begin(p), parts.length(p), &part_w, &part_wg);
            sum_w += part_w;
            sum_wg += part_wg;
        }
        *mean = real(weighted_mean(sum_w, sum_wg));
        write(residual, grad, 1 / *temperature, *mean, out, n);
        residual += n;
        grad += n;
        out += n;
        mean += 1;
        temperature += temperature_stride;
    }
}

static const GateJacobianTable<real> gate_jacobian_table = {rows, sums, write};
