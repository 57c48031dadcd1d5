// What a case is made of: the fuzzer's bytes as choices and numbers, and after their end a generator that they seed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace fuzz {

class Input {
public:
    Input(const uint8_t* data, size_t size) : next_(data), end_(data + size) {
        for (size_t i = 0; i < size; ++i) state_ = (state_ ^ data[i]) * 0x100000001b3u;
    }

    uint8_t byte() { return next_ < end_ ? *next_++ : uint8_t(random() >> 56); }
    bool flag() { return (byte() & 1) != 0; }
    // From 0 to count − 1.
    int64_t below(int64_t count) {
        if (count <= 1) return 0;
        if (count <= 256) return byte() % count;
        const uint64_t high = byte();
        return int64_t((high << 8 | byte()) % uint64_t(count));
    }
    template <typename T, size_t count>
    T one_of(const T (&choices)[count]) {
        return choices[below(int64_t(count))];
    }

    uint64_t random() {
        state_ += 0x9e3779b97f4a7c15u;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    double uniform() { return double(random() >> 11) * 0x1p-53; }  // in [0, 1)
    double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }

private:
    const uint8_t *next_, *end_;
    uint64_t state_ = 0xcbf29ce484222325u;
};

// How many rows of how many elements: short ones, and the lengths at which kernels change their way.
struct Shape {
    int64_t rows, n;
    int64_t size() const { return rows * n; }
};

inline Shape shape(Input& in, int64_t least, int64_t most) {
    static const int64_t edges[] = {63,  64,  65,  66,  96,   127,  128,  129,  130,  160,  255,  256,  257,  258,
                                    300, 511, 512, 513, 1000, 1023, 1024, 1025, 1030, 2047, 2049, 4095, 4097, 5000};
    static const int64_t far[] = {8191, 9001, 16385, 32767, 32768, 33001, 40003};
#ifdef KHOT_FUZZ_THREADS
    const int large = 64;
#else
    const int large = 1;
#endif
    const int kind = in.byte();
    int64_t n = kind < 256 - large - 24 ? in.below(48) : kind < 256 - large ? in.one_of(edges) : in.one_of(far);
    n = n < least ? least : n > most ? most : n;
    const int64_t asked = in.flag() ? in.below(4) : in.below(40);
    int64_t fitting = n < 1 ? 3 : 1000 / n + 1;
#ifdef KHOT_FUZZ_THREADS
    fitting = n < 1 ? 3 : 20000 / n + 2;
    if (in.flag()) return {fitting, n};  // so many elements that threads share them
#endif
    return {asked < fitting ? asked : fitting, n};
}

enum class Values { finite, infinite, any };

template <typename real>
real special(Input& in, Values values) {
    using limits = std::numeric_limits<real>;
    static const real table[] = {real(0),
                                 real(-0.0),
                                 real(1),
                                 real(-1),
                                 real(0.5),
                                 real(2),
                                 real(-3),
                                 real(1e-3),
                                 real(30),
                                 real(-30),
                                 real(88),
                                 real(-104),
                                 real(1e4),
                                 real(-1e4),
                                 real(1e10),
                                 real(1e30),
                                 real(-1e30),
                                 limits::max(),
                                 limits::lowest(),
                                 limits::max() / 2,
                                 limits::lowest() / 2,
                                 limits::min(),
                                 -limits::min(),
                                 limits::denorm_min(),
                                 -limits::denorm_min(),
                                 limits::epsilon(),
                                 1 + limits::epsilon(),
                                 1 - limits::epsilon() / 2,
                                 real(16777216),
                                 limits::infinity(),
                                 -limits::infinity(),
                                 limits::quiet_NaN()};
    const int64_t count = int64_t(sizeof(table) / sizeof(real));
    return table[in.below(values == Values::finite ? count - 3 : values == Values::infinite ? count - 1 : count)];
}

template <typename real>
real any_bits(Input& in, Values values) {
    real value;
    const uint64_t word = in.random();
    std::memcpy(&value, &word, sizeof value);
    return values == Values::any || std::isfinite(value) ? value : real(1);
}

template <typename real>
real within_range(double value) {
    const double most = double(std::numeric_limits<real>::max());
    return real(value > most ? most : value < -most ? -most : value);
}

// Scores of one of many kinds; what is not finite comes by itself in some, and is strewn over the others.
template <typename real>
void fill(Input& in, real* x, int64_t count, Values values) {
    static const double scales[] = {1, 1, 3, 1e-3, 30, 1e3, 1e6, 1e-6, 1e30};
    static const double shifts[] = {0, 0, 0, 1e4, -1e3};
    const int64_t kind = in.below(10);
    const double scale = in.one_of(scales), shift = in.one_of(shifts);
    const real constant = special<real>(in, Values::finite);
    for (int64_t i = 0; i < count; ++i) {
        switch (kind) {
            case 0: x[i] = special<real>(in, values); break;
            case 1: x[i] = real(int(in.byte()) % 7 - 3); break;
            case 2: x[i] = any_bits<real>(in, values); break;
            case 3: x[i] = constant; break;
            case 4: x[i] = within_range<real>(scale * double(i)); break;
            case 5: x[i] = within_range<real>(-scale * double(i)); break;
            case 6: x[i] = within_range<real>(1000 + 1e-3 * in.normal()); break;
            case 7: x[i] = within_range<real>(in.uniform() < 0.03 ? 1e30 : 1 + 1e-6 * in.uniform()); break;
            case 8: x[i] = within_range<real>((in.flag() ? 1 : -1) * std::exp(15 * in.normal())); break;
            default: x[i] = within_range<real>(scale * in.normal() + shift);
        }
    }
    if (values == Values::finite || kind == 0 || kind == 2) return;
    const real infinity = std::numeric_limits<real>::infinity();
    static const double shares[] = {0, 0, 0, 0.01, 0.3, 1};
    const double excluded = in.one_of(shares), surely = in.one_of(shares), nan = in.one_of(shares);
    for (int64_t i = 0; i < count; ++i) {
        if (in.uniform() < excluded) x[i] = -infinity;
        if (in.uniform() < surely * 0.2) x[i] = infinity;
        if (values == Values::any && in.uniform() < nan * 0.1) x[i] = std::numeric_limits<real>::quiet_NaN();
    }
}

// A budget from 0 to n, whole or not, also very near to whole ones and to the ends.
inline double budget(Input& in, int64_t n, bool whole) {
    const double base = double(in.below(n + 1));
    if (whole) return base;
    double k = base;
    switch (in.below(6)) {
        case 0: k = base + in.uniform(); break;
        case 1: k = base + std::pow(10, -1 - 13 * in.uniform()) * (in.flag() ? 1 : -1); break;
        case 2: k = std::pow(10, -6 * in.uniform()); break;
        case 3: k = double(n) - std::pow(10, -6 * in.uniform()); break;
        default: break;
    }
    return k < 0 ? 0 : k > double(n) ? double(n) : k;
}

template <typename real>
real temperature(Input& in) {
    static const real table[] = {1,          1,          real(0.1),  real(0.7),  real(0.01), 10,
                                 real(1e3),  real(1e-3), real(3e-5), real(1e-6), real(1e6),  real(1e-30),
                                 real(1e30), std::numeric_limits<real>::min(), std::numeric_limits<real>::max()};
    return in.one_of(table);
}

}  // namespace fuzz
