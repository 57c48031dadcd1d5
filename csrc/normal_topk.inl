// Body of normal_topk.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "blocks.inl"
#include "anchors.inl"

// Φ(−b) = exp(−b²/2) · t · Q(2t − 1),  t = 1/(1 + 0.3 b), b ≥ 0: Q is a polynomial fitted to what is left, with a
// relative error of 4e-8 (1.3e-16 in double) for all b.
static const float NORMAL_TAIL_SINGLE[11] = {
    0.221970613383959646f, 0.164579546858349667f, 0.0865496696736899955f, 0.0277590770404426937f,
    0.00181676307588997594f, -0.00241639257073182591f, -0.000574081450651217226f, 0.000265320578053492915f,
    0.0000872542355398111246f, -0.0000288990554265483291f, -8.8773140927355767e-6f};
static const double NORMAL_TAIL_DOUBLE[25] = {
    0.221970613834432787, 0.164579484086162698, 0.0865496374184625989, 0.0277603654737306122,
    0.00181713579545300753, -0.00242389654822852698, -0.000575642515215363713, 0.000283636918696131349,
    0.0000901399083442175132, -0.0000497463611183869022, -0.0000111254936936761761,
    0.0000107312951926651523, 2.44215964806364338e-7, -2.24966440835998033e-6, 5.19426013625059618e-7,
    3.53278904637202466e-7, -2.33072805733662874e-7, -8.02376402137966743e-9, 6.17686596450194255e-8,
    -1.76748181438651314e-8, -9.83200521779111411e-9, 5.90863066491375841e-9, 5.48993716833457532e-10,
    -7.49194879559068194e-10, 5.76104889798069362e-11};

struct Tail {
    vec tail, density;  // Φ(−|a|), and φ(a)·√(2π)
};

KHOT_INLINE Tail tail_of(vec a) {
    const vec b = a < 0 ? -a : a;
    const vec t = 1 / (1 + b * real(0.3)), s = 2 * t - 1;
    const vec density = exponential(b * b * real(-0.5));
    vec q;
    if (KHOT_SINGLE) {
        q = all(real(NORMAL_TAIL_SINGLE[10]));
        for (int i = 9; i >= 0; --i) q = q * s + real(NORMAL_TAIL_SINGLE[i]);
    } else {
        q = all(real(NORMAL_TAIL_DOUBLE[24]));
        for (int i = 23; i >= 0; --i) q = q * s + real(NORMAL_TAIL_DOUBLE[i]);
    }
    return {density * t * q, density};
}

// z = (x − anchor)·rate, kept within ±10⁴: beyond, a gate is 0 or 1. Half the difference cannot overflow. u may be x.
static void start(const real* x, real anchor, real rate, real* u, int64_t n) {
    const real half = anchor * real(0.5), twice = rate * 2;
    const vec far = all(real(1e4));
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        vec z = ((whole ? load(x + i) : load_tail(x + i, n - i, anchor)) * real(0.5) - half) * twice;
        z = z > far ? far : z;
        z = z < -far ? -far : z;
        if (whole) {
            store(u + i, z);
        } else {
            store_tail(u + i, z, n - i);
        }
    }
}

static Moments moments_at(const real* u, double e, int64_t n) {
    Moments total = {};
    const vec shift = all(real(e));
    KHOT_BLOCKS(n) {
        vec count{}, distance{}, m[5] = {};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec a = (i + LANES <= end ? load(u + i) : load_tail(u + i, end - i, -real(1e4))) + shift;
            const Tail t = tail_of(a);
            const ivec above = a > 0;
            count += (vec)(above & (ivec)all(real(1)));
            distance += above ? -t.tail : t.tail;
            vec power = t.density;
            m[0] += power;
            for (int j = 1; j < 5; ++j) {
                power *= a;
                m[j] += power;
            }
        }
        total.count += double(sum_of_lanes(count));
        total.distance += double(sum_of_lanes(distance));
        for (int j = 0; j < 5; ++j) total.m[j] += double(sum_of_lanes(m[j])) * 0.3989422804014327;
    }
    return total;
}

// Sums over the entries below and above a split at z = 0, of F below and of 1 − F above, with two derivatives.
static SplitSums split_sums(const real* u, double e, bool ties_below, int64_t n) {
    SplitSums total = {};
    const vec shift = all(real(e));
    KHOT_BLOCKS(n) {
        vec p[3] = {}, q[3] = {};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec z = i + LANES <= end ? load(u + i) : load_tail(u + i, end - i, -real(1e4));
            const ivec above = ties_below ? z > 0 : z >= 0;
            const vec a = above ? -(z + shift) : z + shift;
            const Tail t = tail_of(a);
            const vec d[3] = {a > 0 ? 1 - t.tail : t.tail, t.density, -a * t.density};
            for (int j = 0; j < 3; ++j) {
                p[j] += (vec)(~above & (ivec)d[j]);
                q[j] += (vec)(above & (ivec)d[j]);
            }
        }
        for (int j = 0; j < 3; ++j) {
            const double scale = j == 0 ? 1 : 0.3989422804014327;
            total.below[j] += double(sum_of_lanes(p[j])) * scale;
            total.above[j] += double(sum_of_lanes(q[j])) * scale;
        }
    }
    return total;
}

static AtZero counts_at_zero(const real* u, int64_t n) {
    AtZero total = {};
    KHOT_BLOCKS(n) {
        ivec above{}, equal{};
        for (int64_t i = begin; i < end; i += LANES) {
            const vec z = i + LANES <= end ? load(u + i) : load_tail(u + i, end - i, -real(1));
            above += z > 0;
            equal += z == 0;
        }
        for (int lane = 0; lane < LANES; ++lane) {
            total.above -= above[lane];
            total.equal -= equal[lane];
        }
    }
    return total;
}

// y may be u; the state, which may be null, is a itself.
static void write(const real* u, double e, real* y, real* state, int64_t n) {
    const vec shift = all(real(e));
    for (int64_t i = 0; i < n; i += LANES) {
        const bool whole = i + LANES <= n;
        const vec a = (whole ? load(u + i) : load_tail(u + i, n - i, 0)) + shift;
        const vec tail = tail_of(a).tail, weight = a > 0 ? 1 - tail : tail;
        if (whole) {
            store(y + i, weight);
            if (state != nullptr) store(state + i, a);
        } else {
            store_tail(y + i, weight, n - i);
            if (state != nullptr) store_tail(state + i, a, n - i);
        }
    }
}

static const NormalTable<real> normal_table = {census, gaussian_anchors, start,          moments_at,
                                               split_sums, counts_at_zero, write};
