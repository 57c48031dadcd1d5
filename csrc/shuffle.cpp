// Systematic draws from long rows in a random order, without a random access to memory that is far away.
//
// A permutation is uniformly random if each unit goes to one of 256 parts at random and each part, which fits the cache, is
// shuffled (Fisher & Yates). The parts are filled, and read again, from the first unit to the last. As in designs.cpp the
// cumulative sums are integers, in units of 2^-shift, and a unit is drawn where a sum passes a whole number.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

constexpr int PARTS = 256;

template <typename real>
struct Memory {
    real* probs;           // of the units of all parts
    unsigned char* drawn;  // likewise
    uint32_t* order;       // of the units of one part
};

template <typename real>
void draw_row(const real* probs, const unsigned char* bytes, double u, real* out, int64_t n, int64_t k,
              const Memory<real>& memory) {
    double total = 0, room = 0;
    int64_t certain = 0, starts[PARTS + 1] = {}, next[PARTS];
    for (int64_t i = 0; i < n; ++i) {
        const double p = probs[i];
        total += p;
        room += p * (1 - p);
        certain += p >= 1;
        ++starts[bytes[i] + 1];
    }
    double share = room > 0 ? (double(k) - total) / room : 0;
    share = share < -1 ? -1 : share > 1 ? 1 : share;
    for (int part = 0; part < PARTS; ++part) {
        starts[part + 1] += starts[part];
        next[part] = starts[part];
    }
    for (int64_t i = 0; i < n; ++i) memory.probs[next[bytes[i]]++] = probs[i];
    const int64_t wanted = k - certain;
    int shift = 51;
    while ((wanted >> (62 - shift)) > 0) --shift;
    const double scale = double(int64_t(1) << shift);
    uint64_t sum = (uint64_t(1) << shift) - 1 - uint64_t(u * scale);
    int64_t drawn = 0;
    for (int part = 0; part < PARTS; ++part) {
        const int64_t first = starts[part], size = starts[part + 1] - first;
        for (int64_t j = 0; j < size; ++j) {
            uint32_t word;
            std::memcpy(&word, bytes + n + 4 * (first + j), sizeof word);
            const uint32_t with = uint32_t((uint64_t(word) * uint64_t(j + 1)) >> 32);
            memory.order[j] = memory.order[with];
            memory.order[with] = uint32_t(j);
        }
        const real* mine = memory.probs + first;
        for (int64_t j = 0; j < size; ++j) {
            const uint32_t unit = memory.order[j];
            const double p = mine[unit], normalised = p + p * (1 - p) * share;
            const uint64_t after = sum + (p < 1 ? uint64_t(int64_t(normalised * scale + 0.5)) : 0);
            const int64_t hit = int64_t(after >> shift) - int64_t(sum >> shift);
            memory.drawn[first + unit] = static_cast<unsigned char>(hit + (p >= 1));
            drawn += hit;
            sum = after;
        }
        next[part] = first;
    }
    for (int64_t i = 0; i < n; ++i) out[i] = real(memory.drawn[next[bytes[i]]++]);
    // The last whole number is where the sum ends, and rounding decides whether it is passed.
    for (int64_t i = n - 1; i >= 0 && drawn != wanted; --i) {
        if (!(probs[i] > 0 && probs[i] < 1) || (drawn < wanted) != (out[i] == 0)) continue;
        out[i] = drawn < wanted ? real(1) : real(0);
        drawn += drawn < wanted ? 1 : -1;
    }
}

}  // namespace

template <typename real>
bool shuffled_systematic(const real* probs, const unsigned char* bytes, const double* u, real* out, int64_t draws,
                         int64_t rows, int64_t n, int64_t k, int threads) {
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(draws * rows * n, threads), draws * rows, [&](int64_t begin, int64_t end) {
        const size_t size = size_t(n);
        char* memory = static_cast<char*>(std::malloc(size * (sizeof(real) + sizeof(uint32_t) + 1)));
        if (memory == nullptr) {
            enough_memory = false;
            return;
        }
        const Memory<real> pieces{reinterpret_cast<real*>(memory),
                                  reinterpret_cast<unsigned char*>(memory + size * (sizeof(real) + sizeof(uint32_t))),
                                  reinterpret_cast<uint32_t*>(memory + size * sizeof(real))};
        for (int64_t row = begin; row < end; ++row) {
            draw_row(probs + row % rows * n, bytes + row * 5 * n, u[row], out + row * n, n, k, pieces);
        }
        std::free(memory);
    });
    return enough_memory;
}

template bool shuffled_systematic(const float*, const unsigned char*, const double*, float*, int64_t, int64_t, int64_t, int64_t,
                                  int);
template bool shuffled_systematic(const double*, const unsigned char*, const double*, double*, int64_t, int64_t, int64_t,
                                  int64_t, int);

}  // namespace khot
