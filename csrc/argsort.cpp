// Stable argsort of rows: the order of torch.sort(stable=True), values and indices at once.
//
// Each value becomes an unsigned integer, its key, in the same order: −0 and 0 the same, NaN the largest,
// all bits flipped when descending. A word is 32 bits of key above the 32 bits of an index, and words are
// sorted by a radix sort from their lowest digit up, which keeps equal keys in the order of their indices.
//
// Only bits that differ between keys are looked at, and in a short row not even all of these: the upper
// ones bring almost everything into place, and an insertion sort does the rest. It counts what it moves and
// gives up where that is too much (keys that share their upper bits, say); then all bits are sorted.
//
// In a very short row it is faster to count, for each key, how many are smaller: that is its place.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

constexpr int64_t SHORT_ROW = 128;       // up to here every key is compared with every other
constexpr int64_t MOVES_EACH = 4;        // the insertion sort after a radix sort may move each so often
constexpr int MAX_DIGIT = 11;            // bits; 2048 counters of 4 bytes, three times, fit the first cache
constexpr int MAX_PASSES = 4;

template <typename real>
struct ArgsortTable {
    // A row of at most SHORT_ROW elements; values may be null.
    void (*short_row)(const real* x, int64_t n, bool descending, real* values, int64_t* indices);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "argsort.inl"
#include "dispatch.h"

namespace khot {
namespace {

const ArgsortTable<float>& table(float) { return KHOT_PICK(f32::argsort_table); }
const ArgsortTable<double>& table(double) { return KHOT_PICK(f64::argsort_table); }

template <typename real>
struct Bits;
template <>
struct Bits<float> {
    using type = uint32_t;
    static constexpr int count = 32;
};
template <>
struct Bits<double> {
    using type = uint64_t;
    static constexpr int count = 64;
};

template <typename real>
using Key = typename Bits<real>::type;

template <typename real>
inline Key<real> key_of(real value, Key<real> flip) {
    using key = Key<real>;
    const key sign = key(1) << (Bits<real>::count - 1);
    key bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = bits == sign ? 0 : bits;  // −0
    bits ^= (bits & sign) ? ~key(0) : sign;
    return (value != value ? ~key(0) : bits) ^ flip;
}

// The value of a key, unless several values have it: zero and NaN are looked up.
template <typename real>
inline real value_of(Key<real> key, Key<real> flip, const real* x, int64_t index) {
    key ^= flip;
    const Key<real> sign = Key<real>(1) << (Bits<real>::count - 1);
    if (key == sign || key == ~Key<real>(0)) return x[index];
    key ^= (key & sign) ? sign : ~Key<real>(0);
    real value;
    std::memcpy(&value, &key, sizeof value);
    return value;
}

// A range of bits, from the lowest on.
struct Range {
    int low, high;
    int width() const { return high - low; }
};

template <typename real>
Range differing_bits(const real* x, int64_t n) {
    const Key<real> first = key_of(x[0], Key<real>(0));
    Key<real> differences = 0;
#pragma omp simd reduction(| : differences)
    for (int64_t i = 0; i < n; ++i) differences |= key_of(x[i], Key<real>(0)) ^ first;
    if (differences == 0) return {0, 0};
    const uint64_t bits = differences;
    return {__builtin_ctzll(bits), 64 - __builtin_clzll(bits)};
}

inline int64_t index_of(uint64_t word) { return int64_t(word & 0xffffffffu); }

// How many of the upper bits the radix sort of a row takes, and in how large digits. A long row fills
// many cells of the upper bits twice, and its counters are few beside it.
struct Plan {
    int bits, digit;

    explicit Plan(int64_t n) {
        if (n < 256) {
            bits = 16, digit = 8;
        } else if (n < 4096) {
            bits = 24, digit = 8;
        } else {
            bits = 32, digit = 11;
        }
    }
};

// How often each digit occurs, of all passes in one go; the number of passes is known to the compiler.
template <int passes>
void count_digits(const uint64_t* words, int64_t n, int low, int width, uint32_t* counts) {
    const uint64_t mask = (uint64_t(1) << width) - 1;
    for (int64_t i = 0; i < n; ++i) {
        uint64_t rest = words[i] >> low;
        for (int pass = 0; pass < passes; ++pass) {
            ++counts[(uint64_t(pass) << width) + (rest & mask)];
            rest >>= width;
        }
    }
}

// Sorts words by the given bits; returns where they are then, in words or in other.
uint64_t* sort_by(Range range, int digit, uint64_t* words, uint64_t* other, int64_t n) {
    if (range.width() <= 0) return words;
    const int passes = (range.width() + digit - 1) / digit;
    const int width = (range.width() + passes - 1) / passes;
    const int64_t cells = int64_t(1) << width;
    const uint64_t mask = uint64_t(cells - 1);
    uint32_t counts[MAX_PASSES << MAX_DIGIT];
    std::memset(counts, 0, sizeof(uint32_t) * size_t(passes * cells));
    switch (passes) {
        case 1: count_digits<1>(words, n, range.low, width, counts); break;
        case 2: count_digits<2>(words, n, range.low, width, counts); break;
        case 3: count_digits<3>(words, n, range.low, width, counts); break;
        default: count_digits<MAX_PASSES>(words, n, range.low, width, counts);
    }
    for (int pass = 0; pass < passes; ++pass) {
        uint32_t* place = counts + pass * cells;
        const int shift = range.low + pass * width;
        if (place[words[0] >> shift & mask] == n) continue;  // the same digit everywhere
        uint32_t sum = 0;
        for (int64_t cell = 0; cell < cells; ++cell) {
            const uint32_t count = place[cell];
            place[cell] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; ++i) {
            const uint64_t word = words[i];
            other[place[word >> shift & mask]++] = word;
        }
        uint64_t* swapped = words;
        words = other;
        other = swapped;
    }
    return words;
}

// Insertion sort of whole words; false if it would take more than the given number of moves.
bool insert(uint64_t* words, int64_t n, int64_t moves) {
    for (int64_t i = 1; i < n; ++i) {
        const uint64_t word = words[i];
        int64_t at = i;
        while (at > 0 && words[at - 1] > word) {
            words[at] = words[at - 1];
            --at;
        }
        words[at] = word;
        moves -= i - at;
        if (moves < 0) return false;
    }
    return true;
}

// The same by keys, which are moved with their words. Words of equal keys are in order already.
bool insert(uint64_t* keys, uint64_t* words, int64_t n, int64_t moves) {
    for (int64_t i = 1; i < n; ++i) {
        const uint64_t key = keys[i], word = words[i];
        int64_t at = i;
        while (at > 0 && keys[at - 1] > key) {
            keys[at] = keys[at - 1];
            words[at] = words[at - 1];
            --at;
        }
        keys[at] = key;
        words[at] = word;
        moves -= i - at;
        if (moves < 0) return false;
    }
    return true;
}

// indices and other have room for n words each, and are used as such until the end.
void sort_row(const float* x, int64_t n, bool descending, float* values, int64_t* indices, uint64_t* other) {
    const uint32_t flip = descending ? ~0u : 0u;
    uint64_t* words = reinterpret_cast<uint64_t*>(indices);
    for (int64_t i = 0; i < n; ++i) words[i] = uint64_t(key_of(x[i], flip)) << 32 | uint64_t(i);
    const Plan plan(n);
    const Range range = differing_bits(x, n), all = {32 + range.low, 32 + range.high};
    const Range upper = {all.width() > plan.bits ? all.high - plan.bits : all.low, all.high};
    uint64_t* sorted = sort_by(upper, plan.digit, words, other, n);
    if (upper.low > all.low && !insert(sorted, n, MOVES_EACH * n)) {
        sorted = sort_by(all, plan.digit, sorted, sorted == words ? other : words, n);
    }
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t word = sorted[i];
        indices[i] = index_of(word);
        if (values != nullptr) values[i] = value_of(uint32_t(word >> 32), flip, x, index_of(word));
    }
}

// A double's key is longer than a word has room for: the words hold the upper 32 of the bits that differ.
void sort_row(const double* x, int64_t n, bool descending, double* values, int64_t* indices, uint64_t* other) {
    const uint64_t flip = descending ? ~uint64_t(0) : 0;
    uint64_t* words = reinterpret_cast<uint64_t*>(indices);
    const Plan plan(n);
    const Range all = differing_bits(x, n);
    const int shift = all.high > 32 ? all.high - 32 : 0;
    for (int64_t i = 0; i < n; ++i) words[i] = key_of(x[i], flip) >> shift << 32 | uint64_t(i);
    const Range held = {all.low > shift ? 32 + all.low - shift : 32, 32 + all.high - shift};
    const Range upper = {held.width() > plan.bits ? held.high - plan.bits : held.low, held.high};
    uint64_t* sorted = sort_by(upper, plan.digit, words, other, n);
    uint64_t* keys = sorted == words ? other : words;
    for (int64_t i = 0; i < n; ++i) keys[i] = key_of(x[index_of(sorted[i])], flip);
    if (!insert(keys, sorted, n, MOVES_EACH * n)) {
        for (int64_t i = 0; i < n; ++i) words[i] = key_of(x[i], flip) << 32 | uint64_t(i);
        const Range lower = {32 + all.low, all.high < 32 ? 32 + all.high : 64};
        sorted = sort_by(lower, plan.digit, words, other, n);
        if (all.high > 32) {
            for (int64_t i = 0; i < n; ++i) {
                const int64_t index = index_of(sorted[i]);
                sorted[i] = key_of(x[index], flip) >> 32 << 32 | uint64_t(index);
            }
            const Range above = {all.low > 32 ? all.low : 32, all.high};
            sorted = sort_by(above, plan.digit, sorted, sorted == words ? other : words, n);
        }
        keys = sorted == words ? other : words;
        for (int64_t i = 0; i < n; ++i) keys[i] = key_of(x[index_of(sorted[i])], flip);
    }
    // indices is either the words or the keys: both are read before it is written.
    for (int64_t i = 0; i < n; ++i) {
        const int64_t index = index_of(sorted[i]);
        const uint64_t key = keys[i];
        indices[i] = index;
        if (values != nullptr) values[i] = value_of(key, flip, x, index);
    }
}

}  // namespace

template <typename real>
bool argsort(const real* x, bool descending, real* values, int64_t* indices, int64_t rows, int64_t n, int threads) {
    const ArgsortTable<real>& kernel = table(real());
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        if (n <= SHORT_ROW) {
            for (int64_t row = begin; row < end; ++row) {
                kernel.short_row(x + row * n, n, descending, values == nullptr ? nullptr : values + row * n,
                                 indices + row * n);
            }
            return;
        }
        uint64_t* other = static_cast<uint64_t*>(std::malloc(size_t(n) * sizeof(uint64_t)));
        if (other == nullptr) {
            enough_memory = false;
            return;
        }
        for (int64_t row = begin; row < end; ++row) {
            sort_row(x + row * n, n, descending, values == nullptr ? nullptr : values + row * n, indices + row * n,
                     other);
        }
        std::free(other);
    });
    return enough_memory;
}

template bool argsort(const float*, bool, float*, int64_t*, int64_t, int64_t, int);
template bool argsort(const double*, bool, double*, int64_t*, int64_t, int64_t, int);

}  // namespace khot
