// Laplace and sparse top-k: y_i = F(z_i + e) with z = (x − anchor)/τ and e such that Σ y = k.
//
//     Laplace    F(a) = exp(a)/2 for a < 0, 1 − exp(−a)/2 above
//     sparse     F(a) = a clamped to [0, 1]: the Euclidean projection on the capped simplex
//
// Both are solved piece by piece: as long as no entry changes its side of a corner of F, the sum is a function of e
// with three coefficients (the tails below), whose root is a formula. One pass gives the coefficients at e, the
// formula the next e; when it no longer moves, it is the root. The ⌈k⌉-th largest score, found by selection, is the
// anchor and gives a bracket that the root cannot leave; a proposal outside of it becomes a bisection. No sort.
//
// Short rows take a fast path first, in groups: without a selection, from the threshold that the row would have if it
// were Gaussian. It gives up when a proposal leaves what is known to hold the root.
#include <cmath>

#include "group.h"
#include "kernels.h"
#include "rows.h"
#include "kth_largest.h"
#include "threads.h"

namespace khot {
namespace {

// How many evaluations the fast path may take, and how far from its start it may go.
constexpr int ROUNDS = 12;
constexpr double NEAR = 4;

// Laplace: Σ 2F below the corner, Σ 2(1 − F) above it, and how many are above.
// Sparse: ΣF of those strictly between 0 and 1, how many these are, and how many are at 1.
struct Tails {
    double low, high, above;
};

constexpr Tails NOTHING = {-1, -1, -1};  // no tails

// The tails of many rows.
template <typename real>
struct GroupTails {
    real low[GROUP], high[GROUP], above[GROUP];
};

template <typename real>
struct GatePasses {
    void (*start)(const real* x, real anchor, real rate, real* u, int64_t n);  // u may be x
    Tails (*tails)(const real* u, double e, int64_t n);
    void (*write)(const real* u, double e, real* y, real* state, int64_t n);  // y may be u; state may be null
    // The same for the listed rows of a group, each at most SUM_BLOCK long.
    void (*start_rows)(const real* x, real* u, int64_t n, const int* rows, int count, const Group<real>& group);
    void (*tails_rows)(const real* u, const double* e, int64_t n, const int* rows, int count,
                       GroupTails<real>& tails);  // those of rows[i] go to place i
};

template <typename real>
struct ThresholdTable {
    Census (*census)(const real* x, int64_t n);
    void (*gaussian_anchors)(const real* x, int64_t n, int rows, real softness, Group<real>& group);
    GatePasses<real> laplace, sparse;
};

// F⁻¹(p) with q = 1 − p; the root of one piece; when that is found, given the tails before the last step too; when
// there is no more to find, since nothing is left between 0 and 1; and e as the passes see it.
struct LaplaceGate {
    template <typename real>
    static constexpr double FARTHEST = SINGLE<real> ? 80 : 690;
    template <typename real>
    static constexpr double STILL = SINGLE<real> ? 2e-7 : 4e-16;  // a step of this size does not move e any more
    static constexpr double AT_HALF = 0;      // F⁻¹(1/2)
    static constexpr double SOFTNESS = 0.785;  // see anchors.inl

    static double quantile(double p, double q) { return p < q ? std::log(2 * p) : -std::log(2 * q); }

    static double excess(const Tails& tails, double k) {
        return (tails.above - k) + (tails.low - tails.high) / 2;
    }

    // low/(2s) + above − high·s/2 = k, for s = exp(−step).
    static double step(const Tails& tails, double k) {
        const double d = k - tails.above;
        if (d == 0) return (std::log(tails.high) - std::log(tails.low)) / 2;
        const double root = std::sqrt(d * d + tails.low * tails.high);
        return d > 0 ? std::log((d + root) / tails.low) : std::log(tails.high / (root - d));
    }

    template <typename real>
    static bool found(const Tails&, const Tails&, double step, double e) {
        return std::fabs(step) <= STILL<real> * (1 + std::fabs(e));
    }

    static bool hard(const Tails& tails, double k) { return tails.above == k && (tails.low == 0 || tails.high == 0); }

    template <typename real>
    static double seen(double e) {
        return double(real(e));
    }
};

struct SparseGate {
    template <typename real>
    static constexpr double FARTHEST = 2e4;
    static constexpr double AT_HALF = 0.5;
    static constexpr double SOFTNESS = 0.033;

    static double quantile(double p, double) { return p; }
    static double excess(const Tails& tails, double k) { return (tails.above - k) + tails.low; }
    static double step(const Tails& tails, double k) { return -excess(tails, k) / tails.high; }

    // As many entries in each piece as before: the same ones, for which the last step was exact, and this one is for
    // its rounding. No absolute size of a step would do: all weights may be smaller.
    template <typename real>
    static bool found(const Tails& tails, const Tails& before, double, double) {
        return tails.high > 0 && tails.high == before.high && tails.above == before.above;
    }

    static bool hard(const Tails& tails, double k) { return tails.above == k && tails.low == 0; }

    template <typename real>
    static double seen(double e) {
        return e;
    }
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "threshold_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const ThresholdTable<float>& table(float) { return KHOT_PICK(f32::threshold_table); }
const ThresholdTable<double>& table(double) { return KHOT_PICK(f64::threshold_table); }

// The row in parts that do not depend on the number of threads: nor does, then, any bit of the result.
template <typename Body>
void over_parts(const Parts& parts, int threads, const Body& body) {
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) body(p, parts.begin(p), parts.length(p));
    });
}

// The root, started from the middle of [low, high].
template <typename real, typename Gate, typename TailsAt>
double root(double low, double high, double k, const TailsAt& tails_at) {
    const double farthest = Gate::template FARTHEST<real>;
    const auto within = [&](double e) {
        return Gate::template seen<real>(e > farthest ? farthest : (e < -farthest ? -farthest : e));
    };
    double e = within((low + high) / 2);
    low -= 1;  // the root can lie on the edge, and rounding just beyond it
    high += 1;
    Tails before = NOTHING;
    for (int steps = 0; steps < 100; ++steps) {
        const Tails tails = tails_at(e);
        const double excess = Gate::excess(tails, k);
        if (Gate::hard(tails, k)) break;
        if (excess < 0 && e > low) low = e;
        if (excess > 0 && e < high) high = e;
        const double step = Gate::step(tails, k), proposal = e + step;
        const bool done = Gate::template found<real>(tails, before, step, e);
        // Strictly inside: two pieces whose roots are each other's ends would be taken in turn for ever.
        const bool inside = (proposal > low && proposal < high) || done;  // NaN is not
        const double next = within(inside ? proposal : (low + high) / 2);
        before = inside ? tails : NOTHING;  // a bisection is no step of a piece
        const bool stuck = next == e;
        e = next;
        if (done || stuck) break;
    }
    return e;
}

// `scratch` holds n reals. It fills row.y (and row.state) completely.
template <typename real, typename Gate>
void solve_row(const ThresholdTable<real>& kernel, const GatePasses<real>& gate, Row<real> row, real* scratch,
               int threads) {
    const int64_t n = row.n;
    if (row.mask != nullptr) {
        apply_mask(row.x, row.mask, n, row.y);
        row.x = row.y;
    }
    const Census census = kernel.census(row.x, n);
    if (settle(row, census)) return;
    // Excluded entries are smaller than all others, so the order statistics of the whole row serve. Those at +inf
    // count as 1 each, here and in the sums.
    const double ceiling = std::ceil(row.k), floor = std::floor(row.k), allowed = double(n - census.excluded);
    const double surely = double(census.surely), k = row.k - surely;
    real next;
    const real upper = kth_and_next_largest(row.x, n, int64_t(ceiling), scratch, &next);
    Gap gap;
    const real anchor = middle_of(upper, next, floor == ceiling, row.rate, &gap);
    const double others = allowed - ceiling + 1, rest = floor - surely + 1;
    const double low = Gate::quantile((row.k - ceiling + 1) / others, (allowed - row.k) / others) - gap.up;
    const double high = Gate::quantile(k / rest, (rest - k) / rest) + gap.down;

    const Parts parts(n);
    over_parts(parts, threads, [&](int64_t, int64_t at, int64_t length) {
        gate.start(row.x + at, anchor, row.rate, row.y + at, length);
    });
    Tails of_part[MAX_PARTS];
    const double e = root<real, Gate>(low, high, row.k, [&](double shift) {
        over_parts(parts, threads, [&](int64_t p, int64_t at, int64_t length) {
            of_part[p] = gate.tails(row.y + at, shift, length);
        });
        Tails sum = {};
        for (int64_t p = 0; p < parts.count; ++p) {
            sum.low += of_part[p].low;
            sum.high += of_part[p].high;
            sum.above += of_part[p].above;
        }
        return sum;
    });
    over_parts(parts, threads, [&](int64_t, int64_t at, int64_t length) {
        gate.write(row.y + at, e, row.y + at, row.state == nullptr ? nullptr : row.state + at, length);
    });
}

// The fast path for `count` rows from x on; open[r] is 0 where it found e[r], with u in place of y.
template <typename real, typename Gate>
void search_group(const ThresholdTable<real>& kernel, const GatePasses<real>& gate, const real* x, real* u, int64_t n,
                  int count, Group<real>& group, double* e) {
    kernel.gaussian_anchors(x, n, count, real(Gate::SOFTNESS), group);
    double low[GROUP], high[GROUP];
    Tails before[GROUP];
    int busy[GROUP], left = 0;  // the rows still at work
    for (int r = 0; r < count; ++r) {
        if (group.open[r] != 0) busy[left++] = r;
        group.open[r] = 1;
        e[r] = Gate::AT_HALF;
        low[r] = e[r] - NEAR;
        high[r] = e[r] + NEAR;
        before[r] = NOTHING;
    }
    gate.start_rows(x, u, n, busy, left, group);
    GroupTails<real> all;
    for (int round = 0; left > 0 && round < ROUNDS; ++round) {
        gate.tails_rows(u, e, n, busy, left, all);
        int still = 0;
        for (int b = 0; b < left; ++b) {
            const int r = busy[b];
            const Tails tails = {double(all.low[b]), double(all.high[b]), double(all.above[b])};
            const double excess = Gate::excess(tails, group.k[r]);
            if (excess < 0) low[r] = e[r];
            if (excess > 0) high[r] = e[r];
            const double step = Gate::step(tails, group.k[r]), proposal = e[r] + step;
            const bool done = Gate::template found<real>(tails, before[r], step, e[r]);
            before[r] = tails;
            if (!(proposal > low[r] && proposal < high[r]) && !done) continue;  // lost
            e[r] = Gate::template seen<real>(proposal);
            if (done) {
                group.open[r] = 0;
            } else {
                busy[still++] = r;
            }
        }
        left = still;
    }
}

template <typename real, typename Gate>
void solve_short_rows(const ThresholdTable<real>& kernel, const GatePasses<real>& gate, const Rows<real>& all,
                      int64_t begin, int64_t end, real* scratch) {
    const int64_t n = all.n;
    const int size = group_size(n);
    const bool all_alike = all.k_stride == 0 && all.temperature_stride == 0;
    Group<real> group;
    double e[GROUP];
    for (int64_t first = begin; first < end; first += size) {
        const int count = int(end - first < size ? end - first : size);
        if (first == begin || !all_alike) set_group(all, first, count, group);
        const real* x = all.x + first * n;
        real* u = all.y + first * n;
        if (all.mask != nullptr) {
            apply_mask(x, all.mask + first * n, count * n, u);
            x = u;
        }
        search_group<real, Gate>(kernel, gate, x, u, n, count, group, e);
        for (int r = 0; r < count; ++r) {
            real* state = all.state == nullptr ? nullptr : all.state + (first + r) * n;
            if (group.open[r] == 0) {
                gate.write(u + r * n, e[r], u + r * n, state, n);
            } else {
                solve_row<real, Gate>(kernel, gate, all[first + r], scratch, 1);
            }
        }
    }
}

template <typename real, typename Gate>
bool solve_rows(const GatePasses<real>& gate, const Rows<real>& all, int64_t rows, int threads) {
    if (all.n == 0) return true;
    const ThresholdTable<real>& kernel = table(real());
    threads = useful_threads(rows * all.n, threads);
    const bool share_rows = rows < threads && all.n >= LONG_ROW;  // between threads
    bool enough_memory = true;
    parallel_ranges(share_rows ? 1 : threads, rows, [&](int64_t begin, int64_t end) {
        Scratch<real> scratch(all.n);
        if (scratch.get() == nullptr) {
            enough_memory = false;  // every writer writes the same
            return;
        }
        if (all.n <= SUM_BLOCK) {
            solve_short_rows<real, Gate>(kernel, gate, all, begin, end, scratch.get());
            return;
        }
        for (int64_t r = begin; r < end; ++r) {
            solve_row<real, Gate>(kernel, gate, all[r], scratch.get(), share_rows ? threads : 1);
        }
    });
    return enough_memory;
}

}  // namespace

template <typename real>
bool laplace_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                  const real* temperature, int64_t temperature_stride, real* y, real* state, int64_t rows,
                  int64_t n, int threads) {
    const Rows<real> all = {x, mask, k, k_stride, temperature, temperature_stride, y, state, n};
    return solve_rows<real, LaplaceGate>(table(real()).laplace, all, rows, threads);
}

template <typename real>
bool sparse_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                 const real* temperature, int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n,
                 int threads) {
    const Rows<real> all = {x, mask, k, k_stride, temperature, temperature_stride, y, state, n};
    return solve_rows<real, SparseGate>(table(real()).sparse, all, rows, threads);
}

template bool laplace_topk(const float*, const unsigned char*, const double*, int64_t, const float*, int64_t, float*,
                           float*, int64_t, int64_t, int);
template bool laplace_topk(const double*, const unsigned char*, const double*, int64_t, const double*, int64_t,
                           double*, double*, int64_t, int64_t, int);
template bool sparse_topk(const float*, const unsigned char*, const double*, int64_t, const float*, int64_t, float*,
                          float*, int64_t, int64_t, int);
template bool sparse_topk(const double*, const unsigned char*, const double*, int64_t, const double*, int64_t,
                          double*, double*, int64_t, int64_t, int);

}  // namespace khot
