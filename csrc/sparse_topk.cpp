// Sparse top-k of a norm q in (1, 2]: y_i = F(z_i + e) with z = (x − anchor)/τ and e such that Σ y = k,
//
//     F(a) = a^p clamped to [0, 1],   p = 1/(q − 1) ≥ 1;
//
// p = 1 is the Euclidean projection on the capped simplex. In general
//
//     ‖z + e‖_p over the entries inside (0, 1)  =  (k − those at 1)^(1/p)
//
// is solved by Newton's method: the left side is nearly linear (for p = 1 it is) as long as no entry leaves (0, 1).
//
// Short rows take a fast path, in groups: without a selection, from the threshold that the row would have if it were
// Gaussian (see anchors.inl). It gives up when a proposal leaves what is known to hold the root.
//
// The sure path: the anchor is the ⌈k⌉-th largest score, found by selection. With e = 0 fewer than k are above 0, with e = 1 at least k
// are 1: the root is between them. So an entry with z ≤ −1 is 0 whatever the root, one with z ≥ 1 is 1, and only those
// between are looked at to find it, within a bracket: a short list, as a rule. One pass over the row then writes the
// weights, which are also the state. Whole p up to 4 take products, others exp(p log a).
#include <cmath>
#include <cstring>

#include "group.h"
#include "kernels.h"
#include "kth_largest.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

constexpr int ROUNDS = 100;

// How many evaluations the fast path may take, how far from its start it may go, and up to what length it pays where
// powers are dear: the sure path takes them of few entries.
constexpr int FAST_ROUNDS = 12;
constexpr double NEAR = 4;
constexpr int64_t DEAR = 64;

// The entries of one vector, at most: a list is filled up to whole ones.
constexpr int64_t PADDING = 16;

// Relative steps: below the first the next is exact, but for corners of F; the second is rounding.
template <typename real>
constexpr double CLOSE = SINGLE<real> ? 1e-4 : 1e-8;
template <typename real>
constexpr double ROUNDING = SINGLE<real> ? 2.5e-7 : 4e-16;

// How many z are in (−1, 0), and from 0 on.
struct Sides {
    int64_t below, above;
};

// Over those inside (0, 1): Σ a^p and Σ a^(p−1); and how many are at 1.
struct PowerSums {
    double inside, slope, ones;
};

// What makes weights of scores.
template <typename real>
struct Weights {
    real anchor, rate;
    double e, p;
};

enum Outcome { OPEN, FOUND, LOST };

// The state of the search in each row of a group.
template <typename real>
struct SparseGroup : Group<real> {
    double e[GROUP], least[GROUP], most[GROUP];       // and between what it lies
    double inside[GROUP], slope[GROUP], ones[GROUP];  // the sums there
    double last_slope[GROUP], last_ones[GROUP], last_size[GROUP];
    int outcome[GROUP];  // of the last step
};

// Of each p by its number if that is at most 4 and whole, else by 0.
template <typename real>
struct SparseTable {
    Census (*census)(const real* x, int64_t n);
    Sides (*centre)(real* list, int64_t n, real anchor, real rate);  // z in the place of scores, and filled up
    void (*gaussian_anchors)(const real* x, int64_t n, int rows, real softness, Group<real>& group);
    PowerSums (*sums[5])(const real* list, int64_t n, double e, double p);
    void (*write[5])(const Weights<real>& of, const real* x, real* y, real* state, int64_t n);  // y may be x
    void (*sums_rows[5])(const real* x, int64_t n, const int* rows, int count, double p, SparseGroup<real>& group);
    void (*step_rows[5])(double p, SparseGroup<real>& group);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "sparse_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const SparseTable<float>& table(float) { return KHOT_PICK(f32::sparse_table); }
const SparseTable<double>& table(double) { return KHOT_PICK(f64::sparse_table); }

// p, and which functions of the table are its own.
struct Power {
    double p;
    int whole;

    explicit Power(double norm) : p(1 / (norm - 1)), whole(0) {
        const double nearest = std::round(p);
        if (nearest >= 1 && nearest <= 4 && std::fabs(p - nearest) < 4e-15) whole = int(nearest);
    }
    double root(double of) const {
        if (whole == 1) return of;
        return whole == 2 ? std::sqrt(of) : std::pow(of, 1 / p);
    }
};

// The scores that may be between 0 and 1, in order, into `list`; how many are surely 1.
template <typename real>
int64_t collect(const Row<real>& row, real anchor, real* list, int64_t* surely, int threads) {
    // By a hair more than τ: one too many does no harm.
    const real reach = (1 + (SINGLE<real> ? real(1e-5) : real(1e-12))) / row.rate, infinity = real(HUGE_VAL);
    const real low = std::nextafter(anchor - reach, -infinity), high = std::nextafter(anchor + reach, infinity);
    if (threads == 1) return values_between(row.x, row.n, low, high, list, surely);
    const Parts parts(row.n);
    int64_t found[MAX_PARTS], ones[MAX_PARTS], total = 0;
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
            const int64_t at = parts.begin(p);
            found[p] = values_between(row.x + at, parts.length(p), low, high, list + at, &ones[p]);
        }
    });
    *surely = 0;
    for (int64_t p = 0; p < parts.count; ++p) {
        std::memmove(list + total, list + parts.begin(p), size_t(found[p]) * sizeof(real));
        total += found[p];
        *surely += ones[p];
    }
    return total;
}

// The root between low and 1, of what is left of k for the entries of the list.
template <typename real, typename SumsAt>
double root(const Power& power, double low, double k, const SumsAt& sums_at) {
    double high = 1, e = (low + high) / 2, last_step = 2, last_ones = -1;
    bool was_close = false;
    low *= 1 - 1e-6;  // the root can lie on the edge, and rounding just beyond it
    for (int round = 0; round < ROUNDS; ++round) {
        const PowerSums at = sums_at(e);
        const double left = k - at.ones, excess = at.inside - left;
        if (excess == 0) break;
        (excess < 0 ? low : high) = e;
        const double relative = left > 0 ? power.root(left / at.inside) - 1 : NAN;
        const double step = at.inside / at.slope * relative, proposal = e + step;
        const bool close = std::fabs(relative) <= CLOSE<real>;
        // Steps must shrink, unless they go on the same way: between two pieces of F they may go to and fro.
        const bool steady = std::fabs(step) <= std::fabs(last_step) / 2 || step * last_step > 0;
        const bool taken = close || (proposal > low && proposal < high && steady);  // NaN is not
        const double next = taken ? proposal : (low + high) / 2;
        const bool found = std::fabs(relative) <= ROUNDING<real> || (close && was_close && at.ones == last_ones);
        const bool stuck = next == e;
        e = next;
        if (found || stuck) break;
        last_step = taken ? step : 2 * (high - low);
        last_ones = at.ones;
        was_close = close;
    }
    return e;
}

// `scratch` holds n reals and a vector more. It fills row.y (and row.state) completely.
template <typename real>
void sure_row(const SparseTable<real>& kernel, const Power& power, Row<real> row, real* scratch, int threads) {
    const int64_t n = row.n;
    if (row.mask != nullptr) {
        apply_mask(row.x, row.mask, n, row.y);
        row.x = row.y;
    }
    if (settle(row, kernel.census(row.x, n))) return;
    // Excluded entries are smaller than all others, so the order statistics of the whole row serve. Those at +inf
    // count as 1 each.
    const double ceiling = std::ceil(row.k);
    const real anchor = kth_largest(row.x, n, int64_t(ceiling), scratch);
    int64_t surely;
    const int64_t length = collect(row, anchor, scratch, &surely, threads);
    const Sides sides = kernel.centre(scratch, length, anchor, row.rate);
    double e = 1;
    // If only k are above 0 even at e = 1, all of them are 1.
    if (sides.below > 0 || double(surely + sides.above) > row.k) {
        // The ⌈k⌉ − 1 largest cannot have more than 1 each; the others that count share the rest, the anchor most of it.
        const double others = double(surely + sides.above + sides.below) - (ceiling - 1);
        const double low = power.root((row.k - (ceiling - 1)) / others);
        const Parts parts(length);
        PowerSums of_part[MAX_PARTS];
        e = root<real>(power, low, row.k - double(surely), [&](double at) {
            parallel_ranges(useful_threads(length, threads), parts.count, [&](int64_t begin, int64_t end) {
                for (int64_t p = begin; p < end; ++p) {
                    of_part[p] = kernel.sums[power.whole](scratch + parts.begin(p), parts.length(p), at, power.p);
                }
            });
            PowerSums sum = {};
            for (int64_t p = 0; p < parts.count; ++p) {
                sum.inside += of_part[p].inside;
                sum.slope += of_part[p].slope;
                sum.ones += of_part[p].ones;
            }
            return sum;
        });
    }
    const Weights<real> weights = {anchor, row.rate, e, power.p};
    const Parts parts(n);
    parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
        const int64_t at = parts.begin(begin), until = parts.begin(end - 1) + parts.length(end - 1);
        kernel.write[power.whole](weights, row.x + at, row.y + at, row.state == nullptr ? nullptr : row.state + at,
                                  until - at);
    });
}

// The fast path for `count` rows from x on; open[r] is 1 where it failed.
template <typename real>
void search(const SparseTable<real>& kernel, const Power& power, const real* x, int64_t n, int count,
            SparseGroup<real>& group) {
    const double p = power.p, mean = p / (p + 1), variance = mean / ((p + 1) * (p + 2));  // of the gate
    kernel.gaussian_anchors(x, n, count, real(0.3926991 * variance), group);
    int busy[GROUP], left = 0;  // the rows still at work
    for (int r = 0; r < GROUP; ++r) {
        if (r < count && group.open[r] != 0) busy[left++] = r;
        group.open[r] = 1;
        group.e[r] = mean;
        group.least[r] = mean - NEAR;
        group.most[r] = mean + NEAR;
        group.inside[r] = group.slope[r] = 1;
        group.ones[r] = group.k[r] - 1;
        group.last_ones[r] = -1;
        group.last_slope[r] = group.last_size[r] = 1;
    }
    for (int round = 0; left > 0 && round < FAST_ROUNDS; ++round) {
        kernel.sums_rows[power.whole](x, n, busy, left, p, group);
        kernel.step_rows[power.whole](p, group);
        int still = 0;
        for (int b = 0; b < left; ++b) {
            const int r = busy[b];
            if (group.outcome[r] == FOUND) group.open[r] = 0;
            if (group.outcome[r] == OPEN) {
                busy[still++] = r;
            } else {
                group.inside[r] = group.slope[r] = 1;  // its next steps, taken with the group's, are none
                group.ones[r] = group.k[r] - 1;
            }
        }
        left = still;
    }
}

// Rows from begin to end, group by group.
template <typename real>
bool short_rows(const SparseTable<real>& kernel, const Power& power, const Rows<real>& rows, int64_t begin, int64_t end,
                Scratch<real>& scratch) {
    const int64_t n = rows.n;
    const int size = group_size(n);
    const bool all_alike = rows.k_stride == 0 && rows.temperature_stride == 0;
    SparseGroup<real> group;
    for (int64_t first = begin; first < end; first += size) {
        const int count = int(end - first < size ? end - first : size);
        if (first == begin || !all_alike) set_group(rows, first, count, group);
        const real* x = rows.x + first * n;
        real* y = rows.y + first * n;
        if (rows.mask != nullptr) {
            apply_mask(x, rows.mask + first * n, count * n, y);
            x = y;
        }
        search(kernel, power, x, n, count, group);
        for (int r = 0; r < count; ++r) {
            if (group.open[r] == 0) {
                const Weights<real> weights = {group.anchor[r], group.rate[r], group.e[r], power.p};
                real* state = rows.state == nullptr ? nullptr : rows.state + (first + r) * n;
                kernel.write[power.whole](weights, x + r * n, y + r * n, state, n);
            } else {
                if (scratch.get() == nullptr) return false;
                sure_row(kernel, power, rows[first + r], scratch.get(), 1);
            }
        }
    }
    return true;
}

}  // namespace

template <typename real>
bool sparse_topk(double norm, const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                const real* temperature, int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n,
                int threads) {
    if (n == 0) return true;
    const SparseTable<real>& kernel = table(real());
    const Power power(norm);
    const Rows<real> all = {x, mask, k, k_stride, temperature, temperature_stride, y, state, n};
    threads = useful_threads(rows * n, threads);
    const bool share_rows = rows < threads && n >= LONG_ROW;  // between threads
    bool enough_memory = true;
    parallel_ranges(share_rows ? 1 : threads, rows, [&](int64_t begin, int64_t end) {
        Scratch<real> scratch(n + PADDING);
        bool enough = true;
        if (n <= (power.whole != 0 ? SUM_BLOCK : DEAR)) {
            enough = short_rows(kernel, power, all, begin, end, scratch);
        } else if (scratch.get() == nullptr) {
            enough = false;
        } else {
            for (int64_t r = begin; r < end; ++r) {
                sure_row(kernel, power, all[r], scratch.get(), share_rows ? threads : 1);
            }
        }
        if (!enough) enough_memory = false;  // every writer writes the same
    });
    return enough_memory;
}

template bool sparse_topk(double, const float*, const unsigned char*, const double*, int64_t, const float*, int64_t, float*,
                         float*, int64_t, int64_t, int);
template bool sparse_topk(double, const double*, const unsigned char*, const double*, int64_t, const double*, int64_t,
                         double*, double*, int64_t, int64_t, int);

}  // namespace khot
