// Body of gate_sums.cpp, compiled for each instruction set and type: see dispatch.h.

#include "gate_row.inl"

// What is summed of the entries on one side of the anchor, and how many they are.
struct SideTerms {
    vec term[TERMS - 1];
    ivec count;
};

// Only the sparse gate has the last of its terms.
KHOT_INLINE int terms_of(GateKind gate) { return gate == GateKind::sparse ? TERMS - 1 : TERMS - 2; }

KHOT_INLINE void find_terms(GateKind gate, vec a, ivec above, vec* term) {
    if (gate == GateKind::sparse) {
        const vec zero{}, one = all(1), low = a > 0 ? a : zero, y = low < 1 ? low : one;
        const ivec inside = (a > 0) & (a < 1);
        term[0] = above ? one - y : y;
        term[1] = only(inside, y);
        term[2] = only(inside, one);
        term[3] = only(y >= 1, one);
        return;
    }
    const vec s = above ? -a : a;
    const ivec beyond = s > 0;
    const vec e = exponential(beyond ? -s : s);
    if (gate == GateKind::laplace) {
        const vec half = e * real(0.5);
        term[0] = beyond ? 1 - half : half;
        term[1] = half;
        term[2] = beyond ? -half : half;
    } else {
        const vec inverse = 1 / (1 + e), p = beyond ? inverse : e * inverse;
        const vec slope = (e * inverse) * inverse;
        term[0] = p;
        term[1] = slope;
        term[2] = slope * (1 - 2 * p);
    }
}

KHOT_INLINE void add(GateKind gate, const GateRow<real>& row, vec x, SideTerms& below, SideTerms& above) {
    const vec z = distance_to_anchor(row, x);
    const ivec active = x - x == 0;  // not the infinite ones
    const ivec up = row.ties_below ? z > 0 : z >= 0;
    vec term[TERMS - 1];
    find_terms(gate, z + row.offset - row.fine, up, term);
    for (int t = 0; t < terms_of(gate); ++t) {
        below.term[t] += only(active & ~up, term[t]);
        above.term[t] += only(active & up, term[t]);
    }
    below.count -= active & ~up;  // true is −1
    above.count -= active & up;
}

KHOT_INLINE void sums(GateKind gate, const GateRow<real>& row, const real* x, int64_t n, double* out) {
    for (int64_t begin = 0; begin < n; begin += SUMMED) {
        const int64_t end = n - begin < SUMMED ? n : begin + SUMMED;
        SideTerms below = {}, above = {};
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) add(gate, row, load(x + i), below, above);
        if (i < end) add(gate, row, load_tail(x + i, end - i, real(__builtin_inf())), below, above);
        for (int t = 0; t < terms_of(gate); ++t) {
            out[t] += double(sum_of_lanes(below.term[t]));
            out[TERMS + t] += double(sum_of_lanes(above.term[t]));
        }
        for (int lane = 0; lane < LANES; ++lane) {
            out[TERMS - 1] += double(below.count[lane]);
            out[2 * TERMS - 1] += double(above.count[lane]);
        }
    }
}

static void logistic(const GateRow<real>& row, const real* x, int64_t n, double* out) {
    sums(GateKind::logistic, row, x, n, out);
}

static void laplace(const GateRow<real>& row, const real* x, int64_t n, double* out) {
    sums(GateKind::laplace, row, x, n, out);
}

static void sparse(const GateRow<real>& row, const real* x, int64_t n, double* out) {
    sums(GateKind::sparse, row, x, n, out);
}

static const SumsTable<real> sums_table = {logistic, laplace, sparse};
