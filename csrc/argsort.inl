// Body of argsort.cpp, compiled for each instruction set and type: see dispatch.h.

typedef bits Keys __attribute__((vector_size(VECTOR_BYTES)));
constexpr int LANES = VECTOR_BYTES / int(sizeof(bits));
constexpr int STEP = 4;  // keys compared in one round
constexpr int ROOM = (SHORT_ROW + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);

static void short_row(const real* x, int64_t n, bool descending, real* values, int64_t* indices) {
    const bits largest = sizeof(bits) == 4 ? bits(INT32_MAX) : bits(INT64_MAX);
    const bits flip = descending ? ~bits(0) : bits(0);
    bits keys[ROOM], smaller[ROOM];
    int32_t seen[SHORT_ROW + 1] = {};
    for (int i = 0; i < ROOM; ++i) keys[i] = largest;  // is smaller than none
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        bits key;
        __builtin_memcpy(&key, x + i, sizeof key);
        key = key == ~largest ? 0 : key;                   // −0
        key ^= key >> (8 * sizeof(bits) - 1) & largest;    // larger negative numbers have smaller keys
        keys[i] = (x[i] != x[i] ? largest : key) ^ flip;
    }
    for (int64_t i = 0; i < n; i += 2 * LANES) {
        Keys first, second, count_first = {}, count_second = {};
        __builtin_memcpy(&first, keys + i, sizeof first);
        __builtin_memcpy(&second, keys + i + LANES, sizeof second);
        for (int64_t j = 0; j < n; j += STEP) {
            for (int next = 0; next < STEP; ++next) {
                const Keys key = keys[j + next] - Keys{};
                count_first -= key < first;
                count_second -= key < second;
            }
        }
        __builtin_memcpy(smaller + i, &count_first, sizeof count_first);
        __builtin_memcpy(smaller + i + LANES, &count_second, sizeof count_second);
    }
    // Equal keys are counted the same; they take their places one after the other, in order.
    for (int64_t i = 0; i < n; ++i) {
        const int64_t place = int64_t(smaller[i]) + seen[smaller[i]]++;
        indices[place] = i;
        if (values != nullptr) values[place] = x[i];
    }
}

static const ArgsortTable<real> argsort_table = {short_row};
