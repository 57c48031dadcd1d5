// The fast path of sigmoid_topk.cpp: one evaluation at the threshold of a Gaussian row, then Halley's method if need be.
#pragma once

#include "kth_largest.h"
#include "sigmoid_types.h"

namespace khot {
namespace {

// Where to start in a row that is not Gaussian: in the middle of the bracket of the sure path, which takes a
// selection. `scratch` holds n reals. With a NaN or with too few scores the start is useless, and is found out.
template <typename real>
real selected_anchor(const real* x, int64_t n, const Group<real>& group, int r, real* scratch) {
    const double order = std::ceil(group.k[r]);
    real next;
    const real anchor = kth_and_next_largest(x, n, int64_t(order), scratch, &next);
    const double half_gap = order == group.k[r] ? (double(anchor) - double(next)) / 2 : 0;
    return real(double(anchor) - half_gap - group.middle[r] / double(group.rate[r]));
}

// The fast path for `count` rows from x on. Afterwards t stands in the group, and open[r] is 1 where it failed.
// set_sums(rows, count, round) sets the group's sums of these rows: in round 0 those of the start, from x, which leaves u in
// the place of y, and later those at group.t. `spare` is memory for a selection in row r, at spare + r·spare_stride.
template <typename real, typename SetSums>
void search(const SigmoidTable<real>& kernel, const real* x, int64_t n, int count, SearchGroup<real>& group, real* spare,
            int64_t spare_stride, const SetSums& set_sums) {
    kernel.gaussian_anchors(x, n, count, real(1), group);
    int busy[GROUP], left = 0;  // the rows still at work
    for (int r = 0; r < GROUP; ++r) {
        if (r < count && group.ordinary[r] != 0) {
            if (group.open[r] == 0) {
                group.anchor[r] = selected_anchor(x + r * n, n, group, r, spare + r * spare_stride);
            }
            group.hard[r] = group.wide[r] != 0 || group.tilt[r] > real(0.4) ? 1 : 0;
            busy[left++] = r;
        }
        group.open[r] = 1;
        group.excess[r] = group.bend[r] = 0;
        group.slope[r] = group.t[r] = 1;
    }
    for (int round = 0; left > 0 && round < ROUNDS; ++round) {
        set_sums(busy, left, round);
        if (round == 0) {
            kernel.first_step(group);
        } else {
            kernel.halley_step(group);
        }
        int still = 0;
        for (int b = 0; b < left; ++b) {
            const int r = busy[b];
            // The first sums are rough: they will do for a row that is not nearly hard.
            const bool found = round > 0 ? group.size[r] < real(CLOSE<real>)
                                         : group.certain[r] != 0 && (group.hard[r] != 0 || 4 * double(group.slope[r]) > group.k[r]);
            const bool lost = !(group.size[r] < 4 && group.t[r] > real(1e-9) && group.t[r] < real(1e9));
            if (found && !lost) group.open[r] = 0;
            if (found || lost) {
                group.excess[r] = 0;  // its next steps, taken with the group's, are 0
            } else {
                busy[still++] = r;
            }
        }
        left = still;
    }
}

// The same for one long row, in parts shared between threads.
template <typename real>
void search_in_parts(const SigmoidTable<real>& kernel, const Row<real>& row, SearchGroup<real>& group, real* spare,
                     int threads) {
    const Parts parts(row.n);
    StartSums starts[MAX_PARTS];
    Sums sums[MAX_PARTS];
    search(kernel, row.x, row.n, 1, group, spare, 0, [&](const int*, int, int round) {
        parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
            for (int64_t p = begin; p < end; ++p) {
                const int64_t at = parts.begin(p), length = parts.length(p);
                real* u = row.y + at;
                if (round == 0) {
                    starts[p] = kernel.start(row.x + at, group.anchor[0], group.rate[0], group.hard[0] != 0, u, length);
                } else {
                    sums[p] = kernel.evaluate(u, group.t[0], length);
                }
            }
        });
        if (round == 0) {
            StartSums total = {};
            for (int64_t p = 0; p < parts.count; ++p) total.add(starts[p]);
            group.set_start(0, total);
        } else {
            Sums total = {};
            for (int64_t p = 0; p < parts.count; ++p) total.add(sums[p]);
            group.set_sums(0, total);
        }
    });
}

}  // namespace
}  // namespace khot
