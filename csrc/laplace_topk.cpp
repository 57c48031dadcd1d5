// Laplace top-k: y_i = F(z_i + e) with z = (x − anchor)/τ and e such that Σ y = k,
//
//     F(a) = exp(a)/2 for a < 0, 1 − exp(−a)/2 above.
//
// One pass leaves w = exp(−|z|), with the side of the corner as its sign. As long as no entry changes its side, twice its
// distance to 0 or 1 is w·exp(e) below the corner and w·exp(−e) above it, and the sum is a function of e with three
// coefficients (the tails), whose root is a formula. A pass without exponentials gives the coefficients at another e, the
// formula the next e; when it no longer moves, it is the root. What a pass sees of e is exp(e): no logarithm is needed.
//
// The fast path starts from the threshold that the row would have if it were Gaussian: see anchors.inl. It gives up when
// a proposal leaves what is known to hold the root. The sure path is anchored at the ⌈k⌉-th largest score, found by
// selection, which gives a bracket that the root cannot leave; a proposal outside of it becomes a bisection. No sort.
#include <cmath>

#include "group.h"
#include "kernels.h"
#include "rows.h"
#include "sure_bracket.h"
#include "threads.h"

namespace khot {
namespace {

// How many evaluations the fast path may take, and how far from its start it may go: exp(4).
constexpr int ROUNDS = 12;
constexpr double NEAR = 54.6;

// Up to this length it cannot be foreseen whether a step moves entries to the other side.
constexpr int64_t OFTEN_CROSSED = 512;

enum Outcome { OPEN, FOUND, LOST };

// Twice the sums of F below the corner and of 1 − F above it, how many are above, and the largest of all the terms, that
// of the entry nearest to the corner.
struct Tails {
    double low, high, above, nearest;

    double excess(double k) const { return (above - k) + (low - high) / 2; }
};

// exp(e), and its inverse.
template <typename real>
struct Corner {
    real up, down;

    explicit Corner(double up) : up(real(up)), down(real(1) / real(up)) {}
};

// The state of the search in each row of a group.
template <typename real>
struct LaplaceGroup : Group<real> {
    double up[GROUP], least[GROUP], most[GROUP];   // exp(e), and between what it lies
    double low[GROUP], high[GROUP], above[GROUP], nearest[GROUP];  // the tails there
    int outcome[GROUP];                                            // of the last step

    void set_tails(int r, const Tails& tails) {
        low[r] = tails.low;
        high[r] = tails.high;
        above[r] = tails.above;
        nearest[r] = tails.nearest;
    }
};

template <typename real>
struct LaplaceTable {
    Census (*census)(const real* x, int64_t n);
    void (*gaussian_anchors)(const real* x, int64_t n, int rows, real softness, Group<real>& group);
    Tails (*start)(const real* x, real anchor, real rate, real* w, int64_t n);  // w may be x
    Tails (*tails)(const real* w, const Corner<real>& corner, int64_t n);
    // The tails of the listed rows, each at most SUM_BLOCK long, from x or, later, from w.
    void (*tails_rows)(const real* x, real* w, int64_t n, const int* rows, int count, bool first,
                       LaplaceGroup<real>& group);
    void (*step)(double n, LaplaceGroup<real>& group);
    void (*write)(const real* w, const Corner<real>& corner, real* y, real* state, int64_t n);  // y may be w; state null
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "laplace_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const LaplaceTable<float>& table(float) { return KHOT_PICK(f32::laplace_table); }
const LaplaceTable<double>& table(double) { return KHOT_PICK(f64::laplace_table); }

// The tails of a row in parts that do not depend on the number of threads: nor does, then, any bit of the result.
template <typename Body>
Tails tails_of_parts(const Parts& parts, int threads, const Body& body) {
    Tails of_part[MAX_PARTS], sum = {};
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) of_part[p] = body(parts.begin(p), parts.length(p));
    });
    for (int64_t p = 0; p < parts.count; ++p) {
        sum.low += of_part[p].low;
        sum.high += of_part[p].high;
        sum.above += of_part[p].above;
        sum.nearest = of_part[p].nearest > sum.nearest ? of_part[p].nearest : sum.nearest;
    }
    return sum;
}

template <typename real>
Tails start_in_parts(const LaplaceTable<real>& kernel, const Row<real>& row, real anchor, int threads) {
    return tails_of_parts(Parts(row.n), threads, [&](int64_t at, int64_t length) {
        return kernel.start(row.x + at, anchor, row.rate, row.y + at, length);
    });
}

template <typename real>
Tails tails_in_parts(const LaplaceTable<real>& kernel, const Row<real>& row, double up, int threads) {
    return tails_of_parts(Parts(row.n), threads, [&](int64_t at, int64_t length) {
        return kernel.tails(row.y + at, Corner<real>(up), length);
    });
}

template <typename real>
void write_in_parts(const LaplaceTable<real>& kernel, const Row<real>& row, double up, int threads) {
    const Parts parts(row.n);
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        const int64_t at = parts.begin(begin), stop = parts.begin(end - 1) + parts.length(end - 1);
        real* y = row.y + at;
        kernel.write(y, Corner<real>(up), y, row.state == nullptr ? nullptr : row.state + at, stop - at);
    });
}

// low/(2s) + above − high·s/2 = k, for s = exp(−step).
double step_of(const Tails& tails, double k) {
    const double d = k - tails.above, root = std::sqrt(d * d + tails.low * tails.high);
    if (d == 0) return (std::log(tails.high) - std::log(tails.low)) / 2;  // whose product may be 0
    return d > 0 ? std::log((d + root) / tails.low) : std::log(tails.high / (root - d));
}

// F⁻¹(p) with q = 1 − p.
double quantile(double p, double q) { return p < q ? std::log(2 * p) : -std::log(2 * q); }

// The root between low and high, from e = 0 on, where the tails are those given.
template <typename real, typename TailsAt>
double root(double low, double high, double k, Tails tails, const TailsAt& tails_at) {
    const double farthest = SINGLE<real> ? 80 : 690, still = SINGLE<real> ? 2e-7 : 4e-16;
    double e = 0;
    low -= 1;  // the root can lie on the edge, and rounding just beyond it
    high += 1;
    for (int steps = 0; steps < 100; ++steps) {
        if (tails.above == k && tails.low == 0 && tails.high == 0) break;  // nothing is between 0 and 1
        const double excess = tails.excess(k);
        if (excess < 0 && e > low) low = e;
        if (excess > 0 && e < high) high = e;
        const double step = step_of(tails, k), proposal = e + step;
        const bool done = std::fabs(step) <= still * (1 + std::fabs(e));
        // Strictly inside: two pieces whose roots are each other's ends would be taken in turn for ever.
        const bool inside = (proposal > low && proposal < high) || done;  // NaN is not
        const double next = inside ? proposal : (low + high) / 2;
        const double seen = double(real(next > farthest ? farthest : (next < -farthest ? -farthest : next)));
        const bool stuck = seen == e;
        e = seen;
        if (done || stuck) break;
        tails = tails_at(e);
    }
    return e;
}

// `scratch` holds n reals. It fills row.y (and row.state) completely.
template <typename real>
void sure_row(const LaplaceTable<real>& kernel, Row<real> row, real* scratch, int threads) {
    const int64_t n = row.n;
    if (row.mask != nullptr) {
        apply_mask(row.x, row.mask, n, row.y);
        row.x = row.y;
    }
    const Census census = kernel.census(row.x, n);
    if (settle(row, census)) return;
    const auto [anchor, low, high] = bracket_of(row, census, scratch, quantile);
    const Tails at_anchor = start_in_parts(kernel, row, anchor, threads);
    const double e = root<real>(low, high, row.k, at_anchor, [&](double shift) {
        return tails_in_parts(kernel, row, std::exp(shift), threads);
    });
    write_in_parts(kernel, row, std::exp(e), threads);
}

// The fast path for `count` rows from x on. Afterwards exp(e) stands in the group, w in the place of y, and open[r] is 1
// where it failed. set_tails(rows, count, first) sets the tails of these rows: first at the start, then at group.up.
template <typename real, typename SetTails>
void search(const LaplaceTable<real>& kernel, const real* x, int64_t n, int count, LaplaceGroup<real>& group,
            const SetTails& set_tails) {
    kernel.gaussian_anchors(x, n, count, real(0.785), group);  // π/8 times the variance of the gate
    int busy[GROUP], left = 0;  // the rows still at work
    for (int r = 0; r < GROUP; ++r) {
        if (r < count && group.open[r] != 0) busy[left++] = r;
        group.open[r] = 1;
        group.up[r] = group.low[r] = group.high[r] = 1;
        group.above[r] = group.k[r];
        group.nearest[r] = 1;
        group.least[r] = 1 / NEAR;
        group.most[r] = NEAR;
    }
    for (int round = 0; left > 0 && round < ROUNDS; ++round) {
        set_tails(busy, left, round == 0);
        kernel.step(double(n), group);
        int still = 0;
        for (int b = 0; b < left; ++b) {
            const int r = busy[b];
            if (group.outcome[r] == FOUND) group.open[r] = 0;
            if (group.outcome[r] == OPEN) {
                busy[still++] = r;
            } else {
                group.set_tails(r, {1, 1, group.k[r], 1});  // its next steps, taken with the group's, are none
            }
        }
        left = still;
    }
}

// Rows from begin to end, group by group.
template <typename real>
bool short_rows(const LaplaceTable<real>& kernel, const Rows<real>& rows, int64_t begin, int64_t end,
                Scratch<real>& scratch) {
    const int64_t n = rows.n;
    const int size = group_size(n);
    const bool all_alike = rows.k_stride == 0 && rows.temperature_stride == 0;
    LaplaceGroup<real> group;
    for (int64_t first = begin; first < end; first += size) {
        const int count = int(end - first < size ? end - first : size);
        if (first == begin || !all_alike) set_group(rows, first, count, group);
        const real* x = rows.x + first * n;
        real* w = rows.y + first * n;
        if (rows.mask != nullptr) {
            apply_mask(x, rows.mask + first * n, count * n, w);
            x = w;
        }
        search(kernel, x, n, count, group, [&](const int* busy, int left, bool at_start) {
            kernel.tails_rows(x, w, n, busy, left, at_start, group);
        });
        for (int r = 0; r < count; ++r) {
            if (group.open[r] == 0) {
                real* state = rows.state == nullptr ? nullptr : rows.state + (first + r) * n;
                kernel.write(w + r * n, Corner<real>(group.up[r]), w + r * n, state, n);
            } else {
                if (scratch.get() == nullptr) return false;
                sure_row(kernel, rows[first + r], scratch.get(), 1);
            }
        }
    }
    return true;
}

template <typename real>
bool long_row(const LaplaceTable<real>& kernel, const Rows<real>& rows, int64_t r, LaplaceGroup<real>& group,
              Scratch<real>& scratch, int threads) {
    Row<real> row = rows[r];
    if (row.mask != nullptr) {
        apply_mask(row.x, row.mask, row.n, row.y);
        row.x = row.y;
    }
    set_group(rows, r, 1, group);
    search(kernel, row.x, row.n, 1, group, [&](const int*, int, bool at_start) {
        group.set_tails(0, at_start ? start_in_parts(kernel, row, group.anchor[0], threads)
                                    : tails_in_parts(kernel, row, group.up[0], threads));
    });
    if (group.open[0] == 0) {
        write_in_parts(kernel, row, group.up[0], threads);
        return true;
    }
    if (scratch.get() == nullptr) return false;
    sure_row(kernel, rows[r], scratch.get(), threads);
    return true;
}

}  // namespace

template <typename real>
bool laplace_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                  const real* temperature, int64_t temperature_stride, real* y, real* state, int64_t rows,
                  int64_t n, int threads) {
    if (n == 0) return true;
    const LaplaceTable<real>& kernel = table(real());
    const Rows<real> all = {x, mask, k, k_stride, temperature, temperature_stride, y, state, n};
    threads = useful_threads(rows * n, threads);
    const bool share_rows = rows < threads && n >= LONG_ROW;  // between threads
    bool enough_memory = true;
    parallel_ranges(share_rows ? 1 : threads, rows, [&](int64_t begin, int64_t end) {
        Scratch<real> scratch(n);
        bool enough = true;
        if (n <= SUM_BLOCK) {
            enough = short_rows(kernel, all, begin, end, scratch);
        } else {
            LaplaceGroup<real> group;
            for (int64_t r = begin; enough && r < end; ++r) {
                enough = long_row(kernel, all, r, group, scratch, share_rows ? threads : 1);
            }
        }
        if (!enough) enough_memory = false;  // every writer writes the same
    });
    return enough_memory;
}

template bool laplace_topk(const float*, const unsigned char*, const double*, int64_t, const float*, int64_t, float*,
                           float*, int64_t, int64_t, int);
template bool laplace_topk(const double*, const unsigned char*, const double*, int64_t, const double*, int64_t,
                           double*, double*, int64_t, int64_t, int);

}  // namespace khot
