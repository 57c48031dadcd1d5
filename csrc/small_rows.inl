// Sums of exponentials for short rows: see small_rows.cpp. Only the double form is used.
#include "vector.inl"
#include "powers.inl"

// p ← exp(l − most), and their sum.
static real exponentials(const real* l, int64_t n, real most, real* p) {
    vec sums = all(0);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec e = exponential(load(l + i) - most);
        store(p + i, e);
        sums += e;
    }
    real sum = sum_of_lanes(sums);
    if (i < n) {
        const vec e = exponential(load_tail(l + i, n - i, -INFINITY) - most);
        store_tail(p + i, e, n - i);
        sum += sum_of_lanes(e);
    }
    return sum;
}

// v ← log v, of numbers from ½ to 1.
static void logarithms(real* v, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(v + i, logarithm(load(v + i)));
    if (i < n) store_tail(v + i, logarithm(load_tail(v + i, n - i, 1)), n - i);
}

// Σ_i |x_j − x_i| at each j.
static void distance_sums(const real* x, int64_t n, real* sums) {
    for (int64_t j = 0; j < n; ++j) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; ++i) sum += x[j] > x[i] ? x[j] - x[i] : x[i] - x[j];
        sums[j] = sum;
    }
}

// Σ_i (v_j + v_i) sign(x_j − x_i), added to out.
static void signed_sums(const real* x, const real* v, int64_t n, real* out) {
    for (int64_t j = 0; j < n; ++j) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; ++i) {
            const real both = v[j] + v[i];
            sum += (x[j] > x[i] ? both : real(0)) - (x[j] < x[i] ? both : real(0));
        }
        out[j] += sum;
    }
}

// Σ_j e_j/(e_j + e_i) at each i; with v, Σ_j e_i e_j/(e_j + e_i)² (v_j − v_i).
static void share_sums(const real* e, const real* v, int64_t n, real* out) {
    for (int64_t i = 0; i < n; ++i) {
        real sum = 0;
        if (v == nullptr) {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < n; ++j) sum += e[j] / (e[j] + e[i]);
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < n; ++j) {
                const real share = e[j] / (e[j] + e[i]);
                sum += share * (1 - share) * (v[j] - v[i]);
            }
        }
        out[i] = sum;
    }
}

// Gates of a window, and their sum.
static real window_gates(const real* each, int64_t n, real step, real* p) {
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) {
        p[j] = each[j] / ((1 + each[j]) * (each[j] + step));
        sum += p[j];
    }
    return sum;
}

static const SmallTable<real> small_table = {exponentials, logarithms, distance_sums,
                                             signed_sums,  share_sums, window_gates};
