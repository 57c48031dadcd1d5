// Body of router_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"

// The k largest of LANES rows that stand side by side, best first, with their places; k is a constant of each copy.
KHOT_INLINE void sorted_list(const real* turned, int64_t n, int k, vec* best, ivec* place) {
    for (int j = 0; j < k; ++j) {
        best[j] = all(-real(__builtin_inf()));
        place[j] = ivec{};
    }
    for (int64_t i = 0; i < n; ++i) {
        vec value = load(turned + i * LANES);
        ivec at = ivec{} + bits(i), moved = ivec{};
        for (int j = 0; j < k; ++j) {
            moved |= value > best[j];  // once one has moved down, all after it do: ties stay in order
            const vec old = best[j];
            const ivec old_at = place[j];
            best[j] = moved ? value : old;
            place[j] = moved ? at : old_at;
            value = moved ? old : value;
            at = moved ? old_at : at;
        }
    }
}

static void sorted_list_of(const real* turned, int64_t n, int64_t k, vec* best, ivec* place) {
    switch (k) {
        case 1: return sorted_list(turned, n, 1, best, place);
        case 2: return sorted_list(turned, n, 2, best, place);
        case 4: return sorted_list(turned, n, 4, best, place);
        case 8: return sorted_list(turned, n, 8, best, place);
        default: return sorted_list(turned, n, int(k), best, place);
    }
}

// Σ exp(x − top) over a row.
KHOT_INLINE real sum_of_exponentials(const real* x, int64_t n, real top) {
    vec sum = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += exponential(load(x + i) - top);
    if (i < n) sum += exponential(load_tail(x + i, n - i, -real(__builtin_inf())) - top);
    return sum_of_lanes(sum);
}

static void forward(const real* x, int64_t rows, int64_t n, int64_t k, bool renormalise, real* turned, int64_t* indices,
                    real* weights, real* sums) {
    vec best[ROUTER_MOST];
    ivec place[ROUTER_MOST];
    for (int64_t first = 0; first < rows; first += LANES) {
        const int64_t count = rows - first < LANES ? rows - first : LANES;
        for (int64_t lane = 0; lane < LANES; ++lane) {
            const real* row = x + (first + (lane < count ? lane : 0)) * n;
            for (int64_t i = 0; i < n; ++i) turned[i * LANES + lane] = row[i];
        }
        sorted_list_of(turned, n, k, best, place);
        vec part = {};  // Σ over the k
        vec each[ROUTER_MOST];
        for (int64_t j = 0; j < k; ++j) {
            each[j] = exponential(best[j] - best[0]);
            part += each[j];
        }
        for (int64_t lane = 0; lane < count; ++lane) {
            const int64_t r = first + lane;
            const real top = best[0][lane];
            const real whole = sum_of_exponentials(x + r * n, n, top);
            const real divide = renormalise && whole == whole ? part[lane] : whole;  // NaN for the whole row
            sums[2 * r] = top;
            sums[2 * r + 1] = whole;
            for (int64_t j = 0; j < k; ++j) {
                indices[r * k + j] = place[j][lane];
                weights[r * k + j] = each[j][lane] / divide;
            }
            if (whole != whole || best[k - 1][lane] == -real(__builtin_inf())) any_row(x + r * n, n, k, indices + r * k);
        }
    }
}

static void backward(const real* x, const int64_t* indices, const real* weights, const real* sums, const real* grad,
                     bool renormalise, real* out, int64_t rows, int64_t n, int64_t k) {
    for (int64_t r = 0; r < rows; ++r) {
        const real *row = x + r * n, *w = weights + r * k, *g = grad + r * k;
        const int64_t* at = indices + r * k;
        real *to = out + r * n, mean = 0;
        for (int64_t j = 0; j < k; ++j) mean += w[j] * g[j];
        const real top = sums[2 * r], factor = renormalise ? real(0) : -mean / sums[2 * r + 1];
        int64_t i = 0;
        if (renormalise) {
            for (; i < n; ++i) to[i] = 0;
        } else {
            for (; i + LANES <= n; i += LANES) store(to + i, exponential(load(row + i) - top) * factor);
            if (i < n) store_tail(to + i, exponential(load_tail(row + i, n - i, top) - top) * factor, n - i);
        }
        for (int64_t j = 0; j < k; ++j) to[at[j]] += w[j] * (renormalise ? g[j] - mean : g[j]);
    }
}

static const RouterTable<real> router_table = {forward, backward};
