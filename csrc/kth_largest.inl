// Body of kth_largest.cpp, compiled for each instruction set and type: see dispatch.h.

#include "vector.inl"
#include "any.inl"
#include "reaching.inl"

constexpr real INF = std::numeric_limits<real>::infinity();

static int64_t count_above(const real* x, int64_t n, real v) {
    int64_t total = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        bits count = 0;
#pragma omp simd reduction(+ : count)
        for (int64_t i = begin; i < end; ++i) count += x[i] > v;
        total += count;
    }
    return total;
}

// How many are > low, ≥ low, > high and ≥ high would be four counts; two of them decide most rounds.
static void count_two(const real* x, int64_t n, real low, real high, int64_t* above_low, int64_t* from_high) {
    int64_t above = 0, from = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        bits block_above = 0, block_from = 0;
#pragma omp simd reduction(+ : block_above, block_from)
        for (int64_t i = begin; i < end; ++i) {
            block_above += x[i] > low;
            block_from += x[i] >= high;
        }
        above += block_above;
        from += block_from;
    }
    *above_low = above;
    *from_high = from;
}

// Writes the values with low < x < high to out, in order; returns how many, and counts those with
// x ≥ high. out may be x itself: nothing is written further on than has been read.
static int64_t collect_between(const real* x, int64_t n, real low, real high, real* out, int64_t* from_high) {
    int64_t found = 0, from = 0, i = 0;
#if KHOT_BODY_AVX2
    constexpr int WIDTH = 32 / int(sizeof(real));
    const vec bound = all(low);
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        if (!reaches(x + i, bound)) continue;
        for (int64_t at = i; at < i + 2 * LANES; at += WIDTH) {
            if constexpr (sizeof(real) == 4) {
                const __m256 value = _mm256_loadu_ps((const float*)(x + at));
                const __m256 high_side = _mm256_cmp_ps(value, _mm256_set1_ps(float(high)), _CMP_GE_OQ);
                const __m256 low_side = _mm256_cmp_ps(value, _mm256_set1_ps(float(low)), _CMP_GT_OQ);
                const unsigned kept = unsigned(_mm256_movemask_ps(_mm256_andnot_ps(high_side, low_side)));
                from += __builtin_popcount(unsigned(_mm256_movemask_ps(high_side)));
                const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)&PACKING.eight[kept]));
                _mm256_storeu_ps((float*)(out + found), _mm256_permutevar8x32_ps(value, order));
                found += __builtin_popcount(kept);
            } else {
                const __m256d value = _mm256_loadu_pd((const double*)(x + at));
                const __m256d high_side = _mm256_cmp_pd(value, _mm256_set1_pd(high), _CMP_GE_OQ);
                const __m256d low_side = _mm256_cmp_pd(value, _mm256_set1_pd(low), _CMP_GT_OQ);
                const unsigned kept = unsigned(_mm256_movemask_pd(_mm256_andnot_pd(high_side, low_side)));
                from += __builtin_popcount(unsigned(_mm256_movemask_pd(high_side)));
                const __m256i order = _mm256_load_si256((const __m256i*)PACKING.four[kept]);
                const __m256 packed = _mm256_permutevar8x32_ps(_mm256_castpd_ps(value), order);
                _mm256_storeu_pd((double*)(out + found), _mm256_castps_pd(packed));
                found += __builtin_popcount(kept);
            }
        }
    }
#endif
    // Compare all, then move all: the comparisons go several at a time, and no branch can be guessed wrong.
    while (i < n) {
        const int64_t size = n - i < CHUNK ? n - i : CHUNK;
        bits keep[CHUNK], chunk_from = 0;
#pragma omp simd reduction(+ : chunk_from)
        for (int64_t j = 0; j < size; ++j) {
            const real value = x[i + j];
            keep[j] = (value > low) & (value < high);
            chunk_from += value >= high;
        }
        for (int64_t j = 0; j < size; ++j) {
            out[found] = x[i + j];
            found += keep[j];
        }
        from += chunk_from;
        i += size;
    }
    *from_high = from;
    return found;
}

static void range(const real* x, int64_t n, real* low, real* high) {
    real smallest = INF, largest = -INF;
#pragma omp simd reduction(min : smallest) reduction(max : largest)
    for (int64_t i = 0; i < n; ++i) {
        smallest = x[i] < smallest ? x[i] : smallest;
        largest = x[i] > largest ? x[i] : largest;
    }
    *low = smallest;
    *high = largest;
}

// The values of rank a and b (0 is the largest) of up to SMALL values: each is compared with each.
// values has room for SMALL and is filled up with −inf, which never has a wanted rank unless it is one.
// Of equal values all have the rank of the first, hence the smallest value whose rank is not too high.
static void by_ranks(real* values, int count, int64_t a, int64_t b, real* at_a, real* at_b) {
    const int padded = (count + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
    for (int i = count; i < padded; ++i) values[i] = -INF;
    const vec none = INF - vec{};
    vec best_a = none, best_b = none;
    for (int j = 0; j < padded; j += 2 * LANES) {
        vec first, second;
        __builtin_memcpy(&first, values + j, sizeof first);
        __builtin_memcpy(&second, values + j + LANES, sizeof second);
        ivec above_first = {}, above_second = {};
        for (int i = 0; i < count; i += 4) {
            for (int next = 0; next < 4; ++next) {
                const vec value = values[i + next] - vec{};
                above_first += value > first;
                above_second += value > second;
            }
        }
        const ivec limit_a = ivec{} - bits(a), limit_b = ivec{} - bits(b);
        const vec first_a = above_first >= limit_a ? first : none;
        const vec second_a = above_second >= limit_a ? second : none;
        const vec first_b = above_first >= limit_b ? first : none;
        const vec second_b = above_second >= limit_b ? second : none;
        const vec low_a = first_a < second_a ? first_a : second_a;
        const vec low_b = first_b < second_b ? first_b : second_b;
        best_a = low_a < best_a ? low_a : best_a;
        best_b = low_b < best_b ? low_b : best_b;
    }
    real lowest_a = best_a[0], lowest_b = best_b[0];
    for (int lane = 1; lane < LANES; ++lane) {
        lowest_a = best_a[lane] < lowest_a ? best_a[lane] : lowest_a;
        lowest_b = best_b[lane] < lowest_b ? best_b[lane] : lowest_b;
    }
    *at_a = lowest_a;
    *at_b = lowest_b;
}

static real kth(const real* x, int64_t n, int64_t k, real* scratch, int64_t* above);

// Two values between which the k-th largest of x should lie, from a sample.
static void enclose(const real* x, int64_t n, int64_t k, real* low, real* high) {
    const int size = n < 4096 ? 32 : n < 16384 ? 64 : n < 131072 ? 256 : LARGEST_SAMPLE;
    real sample[LARGEST_SAMPLE];
    const int64_t step = n / size;
    for (int i = 0; i < size; ++i) {
        // step * share without overflow: a row of 2^47 values does not exist.
        sample[i] = x[i * step + (step * JITTER.share[i] >> 16)];
    }
    const double place = double(k) / double(n) * size;
    const double spread = __builtin_sqrt(place * (1 - place / size));
    // In a short row a wrong guess costs little, in a long one more than a few values too many.
    const double margin = (size <= SMALL ? 1.5 : 2.75) * spread + 1;
    int64_t upper = int64_t(place - margin), lower = int64_t(place + margin);
    const bool has_upper = place - margin >= 0, has_lower = lower < size;
    if (!has_upper) upper = 0;
    if (!has_lower) lower = size - 1;
    if (size <= SMALL) {
        by_ranks(sample, size, upper, lower, high, low);
    } else {
        real inner[LARGEST_SAMPLE];
        int64_t above;
        *high = kth(sample, size, upper + 1, inner, &above);
        *low = kth(sample, size, lower + 1, inner, &above);
    }
    if (*low == *high) return;  // ties, most likely: then it is this value
    if (!has_upper) *high = INF;
    if (!has_lower) *low = -INF;
}

static real kth(const real* x, int64_t n, int64_t k, real* scratch, int64_t* above) {
    int64_t dropped = 0;  // values that are greater than all that are left
    bool halve = false;   // after a round that did not help, halve the range of values: that always ends
    while (n > SMALL) {
        real low, high;
        if (halve) {
            range(x, n, &low, &high);
            low = high = middle(low, high);
        } else {
            enclose(x, n, k, &low, &high);
        }
        int64_t from_high, above_low, found = -1;
        if (x != scratch && low < high) {
            found = collect_between(x, n, low, high, scratch, &from_high);
            above_low = from_high + found;
        } else {
            count_two(x, n, low, high, &above_low, &from_high);
        }
        if (k <= from_high) {
            const int64_t above_high = low == high ? above_low : count_above(x, n, high);
            if (k > above_high) {
                *above = dropped + above_high;
                return high;
            }
            low = high;
            high = INF;
            found = -1;
        } else if (k > above_low) {
            int64_t from_low;
            count_two(x, n, low, low, &above_low, &from_low);
            if (k <= from_low) {
                *above = dropped + above_low;
                return low;
            }
            high = low;
            low = -INF;
            found = -1;
        }
        if (found < 0) found = collect_between(x, n, low, high, scratch, &from_high);
        if (k <= from_high) {  // only if high is +inf by now
            *above = dropped;
            return high;
        }
        if (k > from_high + found) {  // only if low is −inf by now, or with NaN
            *above = dropped + from_high + found;
            return low;
        }
        halve = found > n / 2;
        x = scratch;
        n = found;
        k -= from_high;
        dropped += from_high;
    }
    real few[SMALL], answer, same;
    __builtin_memcpy(few, x, size_t(n) * sizeof(real));
    by_ranks(few, int(n), k - 1, k - 1, &answer, &same);
    *above = dropped + count_above(few, n, answer);
    return answer;
}

static real kth_and_next(const real* x, int64_t n, int64_t k, real* scratch, real* next) {
    int64_t above, total = 0;
    const real value = kth(x, n, k, scratch, &above);
    real below = -INF;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        bits from = 0;
#pragma omp simd reduction(+ : from) reduction(max : below)
        for (int64_t i = begin; i < end; ++i) {
            const bool counts = x[i] >= value;
            from += counts;
            const real candidate = counts ? -INF : x[i];
            below = candidate > below ? candidate : below;
        }
        total += from;
    }
    *next = total > k || k == n ? value : below;
    return value;
}

static const SelectTable<real> select_table = {kth, kth_and_next, count_above, collect_between};
