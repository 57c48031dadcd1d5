// Body of gate_jacobian.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "any.inl"
#include "estimates.inl"
#include "powers.inl"
#include "sigmoid_slopes.inl"

// Everything below is inlined for each gate, where its number is a constant.

// A state without slope.
KHOT_INLINE real still(GateKind gate) { return gate == GateKind::normal ? real(1e18) : real(0); }

// Above this weight the digits of 1 − y are too few.
static const real HIGH = real(0.9375);

// To the largest number of all, a number below this adds nothing.
static const real SMALL = KHOT_SINGLE ? real(1e30) : real(1e290);

// Beyond this 1/τ every digit of the mean counts.
static const real HUGE_SCALE = real(1e8);

// Where the slopes of a row come from: from its state, from low weights alone, or from out, where they were kept.
enum class Slopes { state, low, kept };

// w of `count` entries from i on, at most LANES, but for the factor that is in the scale.
KHOT_INLINE vec slopes(GateKind gate, const Piece<real>& piece, int64_t i, int64_t count) {
    const bool whole = count >= LANES;
    const vec state = whole ? load(piece.state + i) : load_tail(piece.state + i, count, still(gate));
    if (gate == GateKind::sparse) return (vec)((state > 0) & (state < 1) & (ivec)all(real(1)));
    if (gate == GateKind::power) {
        const ivec inside = (state > 0) & (state < 1);
        const vec y = inside ? state : all(1);
        if (piece.exponent == real(0.5)) return (vec)(inside & (ivec)square_root(y));
        if (!any(inside)) return vec{};  // worth a branch, as a square root is not
        return (vec)(inside & (ivec)exponential(logarithm(y) * piece.exponent));
    }
    if (gate == GateKind::laplace) return state < 0 ? -state : state;
    if (gate == GateKind::logistic) {
        const vec distance = state < 0 ? -state : state;
        return distance * (1 - distance);
    }
    if (gate == GateKind::normal) return exponential(state * state * real(-0.5)) * real(0.3989422804014327);
    const vec w = state * (1 - state);
    const ivec high = state > HIGH;
    if (__builtin_expect(!any(high), 1)) return w;
    const vec x = whole ? load(piece.x + i) : load_tail(piece.x + i, count, -real(__builtin_inf()));
    return high ? slope_of(x, piece.anchor, piece.t, slope_factor(piece.rate)) : w;
}

struct LaneSums {
    vec w, wg;
};

// Where w = 0 the value is chosen by a select, not by the product, since 0 · inf is NaN. w is kept unless that is null.
KHOT_INLINE LaneSums sums_of(GateKind gate, const Piece<real>& piece, int64_t begin, int64_t end, real* kept) {
    LaneSums s[2] = {};
    if (gate == GateKind::logistic_weight && piece.t == 0) return s[0];
    const auto add = [&](int64_t at, vec w, vec g, LaneSums& to) __attribute__((always_inline)) {
        if (kept != nullptr) store(kept + at, w);
        to.w += w;
        to.wg += w * (w == 0 ? vec{} : g);
    };
    int64_t i = begin;
    for (; i + 2 * LANES <= end; i += 2 * LANES) {
        add(i, slopes(gate, piece, i, LANES), load(piece.grad + i), s[0]);
        add(i + LANES, slopes(gate, piece, i + LANES, LANES), load(piece.grad + i + LANES), s[1]);
    }
    for (; i + LANES <= end; i += LANES) add(i, slopes(gate, piece, i, LANES), load(piece.grad + i), s[0]);
    if (i < end) {
        const vec w = slopes(gate, piece, i, end - i), g = load_tail(piece.grad + i, end - i, 0);
        if (kept != nullptr) store_tail(kept + i, w, end - i);
        s[0].w += w;
        s[0].wg += w * (w == 0 ? vec{} : g);
    }
    return {s[0].w + s[1].w, s[0].wg + s[1].wg};
}

// Of a row by `logistic_weight` in which no slope needs its score and all is finite, which is the rule; false elsewhere.
KHOT_INLINE bool low_sums(const Piece<real>& piece, int64_t n, LaneSums* sums) {
    vec highest{};
    LaneSums s[2] = {};
    const auto add = [&](vec y, vec g, LaneSums& to) __attribute__((always_inline)) {
        const vec w = y * (1 - y);
        highest = y > highest ? y : highest;
        to.w += w;
        to.wg += w * g;  // not finite if any g is not, or if w is NaN
    };
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        add(load(piece.state + i), load(piece.grad + i), s[0]);
        add(load(piece.state + i + LANES), load(piece.grad + i + LANES), s[1]);
    }
    for (; i + LANES <= n; i += LANES) add(load(piece.state + i), load(piece.grad + i), s[0]);
    if (i < n) add(load_tail(piece.state + i, n - i, 0), load_tail(piece.grad + i, n - i, 0), s[1]);
    *sums = {s[0].w + s[1].w, s[0].wg + s[1].wg};
    return !any((highest > HIGH) | ~(sums->wg - sums->wg == 0)) && piece.t != 0;
}

KHOT_INLINE SlopeSums sums(GateKind gate, const Piece<real>& piece, int64_t from, int64_t to) {
    SlopeSums total = {};
    for (int64_t begin = from; begin < to; begin += BLOCK) {
        const LaneSums s = sums_of(gate, piece, begin, to - begin < BLOCK ? to : begin + BLOCK, nullptr);
        total.add({double(sum_of_lanes(s.w)), double(sum_of_lanes(s.wg))});
    }
    return total;
}

// w of `count` entries from i on, at most LANES; `out` is where they were kept.
KHOT_INLINE vec slopes_from(GateKind gate, Slopes from, const Piece<real>& piece, const real* out, int64_t i,
                            int64_t count) {
    const bool whole = count >= LANES;
    if (from == Slopes::kept) return whole ? load(out + i) : load_tail(out + i, count, 0);
    if (from == Slopes::state) return slopes(gate, piece, i, count);
    const vec y = whole ? load(piece.state + i) : load_tail(piece.state + i, count, 0);
    return y * (1 - y);
}

// The mean of a row with a huge 1/τ, by which a rounding of it would be multiplied: relative to the gradient where the
// slope is largest, so that of tied ones it is theirs to the last bit.
KHOT_INLINE real centred_mean(GateKind gate, Slopes from, const Piece<real>& piece, const real* out, int64_t n) {
    double centre = 0;
    real most = 0;
    SlopeSums total = {};
    for (int pass = 0; pass < 2; ++pass) {
        for (int64_t i = 0; i < n; i += LANES) {
            const vec w = slopes_from(gate, from, piece, out, i, n - i);
            for (int lane = 0; lane < LANES && i + lane < n; ++lane) {
                const double g = double(piece.grad[i + lane]);
                if (w[lane] == 0) continue;
                if (pass == 1) {
                    total.add({double(w[lane]), double(w[lane]) * (g - centre)});
                } else if (w[lane] > most) {
                    most = w[lane];
                    centre = g;
                }
            }
        }
    }
    return real(centre + total.mean());
}

KHOT_INLINE void write(GateKind gate, Slopes from, const Piece<real>& piece, real mean, real* out, int64_t begin,
                       int64_t end) {
    if (gate == GateKind::logistic_weight && piece.t == 0) {
        for (int64_t i = begin; i < end; ++i) out[i] = 0;
        return;
    }
    const auto product = [&](vec w, vec g) __attribute__((always_inline)) {
        const vec moved = (w * piece.scale) * (g - mean);
        return from == Slopes::low ? moved : (w == 0 ? vec{} : moved);  // 0 · inf is NaN
    };
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) {
        store(out + i, product(slopes_from(gate, from, piece, out, i, LANES), load(piece.grad + i)));
    }
    if (i < end) {
        const vec w = slopes_from(gate, from, piece, out, i, end - i), g = load_tail(piece.grad + i, end - i, 0);
        store_tail(out + i, product(w, g), end - i);
    }
}

KHOT_INLINE real mean_of(GateKind gate, const Piece<real>& row, int64_t n) {
    const Parts parts(n);
    SlopeSums total = {};
    for (int64_t p = 0; p < parts.count; ++p) {
        total.add(sums(gate, row, parts.begin(p), parts.begin(p) + parts.length(p)));
    }
    return real(total.mean());
}

// Consecutive rows, in groups if they are short.
KHOT_INLINE void rows(GateKind gate, const JacobianRows<real>& all, int64_t begin, int64_t end) {
    const int64_t n = all.n, fitting = GROUP_ELEMENTS / (n + 1);
    const int64_t size = n > SHORT ? 1 : (fitting < GROUP ? fitting : GROUP);
    const bool by_weight = gate == GateKind::logistic_weight && n <= BLOCK;
    const bool keeps = by_weight || (gate == GateKind::power && n <= BLOCK);  // slopes that are dear
    Piece<real> row[GROUP];
    for (Piece<real>& each : row) each = all[begin];
    for (int64_t first = begin; first < end; first += size) {
        const int count = int(end - first < size ? end - first : size);
        real mean[GROUP];
        Slopes from[GROUP];
        vec lanes[2][GROUP];
        lanes[0][0] = lanes[1][0] = vec{};
        for (int r = 0; r < count; ++r) {
            all.read(first + r, &row[r], all.temperature_stride == 0);
            from[r] = Slopes::state;
            if (size == 1 && n > BLOCK) continue;
            LaneSums s;
            if (by_weight && low_sums(row[r], n, &s)) {
                from[r] = Slopes::low;
            } else {
                s = sums_of(gate, row[r], 0, n, keeps ? all.out + (first + r) * n : nullptr);
                if (keeps) from[r] = Slopes::kept;
            }
            lanes[0][r] = s.w;
            lanes[1][r] = s.wg;
        }
        if (size > 1) {
            real totals[2][GROUP] = {};
            for (int what = 0; what < 2; ++what) sums_of_lanes(lanes[what], count, totals[what]);
            for (int r = 0; r < GROUP; ++r) mean[r] = totals[0][r] == 0 ? 0 : totals[1][r] / totals[0][r];
        } else if (n > BLOCK) {
            mean[0] = mean_of(gate, row[0], n);
        } else {
            mean[0] = real(SlopeSums{double(sum_of_lanes(lanes[0][0])), double(sum_of_lanes(lanes[1][0]))}.mean());
        }
        for (int r = 0; r < count; ++r) {
            real* out = all.out + (first + r) * n;
            const bool settled = gate == GateKind::logistic_weight && row[r].t == 0;
            if (row[r].scale > HUGE_SCALE && !settled) mean[r] = centred_mean(gate, from[r], row[r], out, n);
            // Beside a small mean no finite g overflows; else an entry with w = 0 must be seen as one.
            if (from[r] == Slopes::low && !(mean[r] < SMALL && mean[r] > -SMALL)) from[r] = Slopes::state;
            switch (from[r]) {
                case Slopes::low: write(gate, Slopes::low, row[r], mean[r], out, 0, n); break;
                case Slopes::kept: write(gate, Slopes::kept, row[r], mean[r], out, 0, n); break;
                default: write(gate, Slopes::state, row[r], mean[r], out, 0, n);
            }
            if (all.mean != nullptr) all.mean[first + r] = mean[r];
        }
    }
}

#define KHOT_GATE(name)                                                                                         \
    static void name##_rows(const JacobianRows<real>& all, int64_t begin, int64_t end) {                        \
        rows(GateKind::name, all, begin, end);                                                                  \
    }                                                                                                           \
    static SlopeSums name##_sums(const Piece<real>& row, int64_t begin, int64_t end) {                          \
        return sums(GateKind::name, row, begin, end);                                                           \
    }                                                                                                           \
    static void name##_write(const Piece<real>& row, real mean, real* out, int64_t begin, int64_t end) {        \
        write(GateKind::name, Slopes::state, row, mean, out, begin, end);                                       \
    }

KHOT_GATE(logistic)
KHOT_GATE(laplace)
KHOT_GATE(sparse)
KHOT_GATE(normal)
KHOT_GATE(logistic_weight)
KHOT_GATE(power)
#undef KHOT_GATE

static const GateJacobianTables<real> gate_jacobian_tables = {{
    {logistic_rows, logistic_sums, logistic_write},
    {laplace_rows, laplace_sums, laplace_write},
    {sparse_rows, sparse_sums, sparse_write},
    {normal_rows, normal_sums, normal_write},
    {logistic_weight_rows, logistic_weight_sums, logistic_weight_write},
    {power_rows, power_sums, power_write},
}};
