// Memory of exactly the size that a kernel may touch, the ways in which a kernel is run, and what must hold afterwards.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "dispatch.h"
#include "input.h"

namespace fuzz {

// What runs now, for the message of a failure.
void doing(const char* kernel, size_t size_of_real, Shape shape);
[[noreturn]] void failed(const char* rule, double got, double wanted);

inline void require(bool holds, const char* rule, double got = 0, double wanted = 0) {
    if (!holds) failed(rule, got, wanted);
}

// Elements that end where the memory ends, and begin at any multiple of their size; NaN or −1 until they are written.
template <typename T>
class Exact {
public:
    explicit Exact(int64_t count, int64_t offset = 0) : count_(count), offset_(offset) {
        memory_ = static_cast<T*>(std::malloc(bytes()));
        if (bytes() > 0) std::memset(static_cast<void*>(memory_), 0xff, bytes());
    }
    Exact(Exact&& other) noexcept : memory_(other.memory_), count_(other.count_), offset_(other.offset_) {
        other.memory_ = nullptr;
    }
    Exact(const Exact&) = delete;
    ~Exact() { std::free(memory_); }

    T* get() { return memory_ + offset_; }
    const T* get() const { return memory_ + offset_; }
    T& operator[](int64_t i) { return memory_[offset_ + i]; }
    const T& operator[](int64_t i) const { return memory_[offset_ + i]; }
    int64_t size() const { return count_; }

private:
    size_t bytes() const { return size_t(count_ + offset_) * sizeof(T); }

    T* memory_;
    int64_t count_, offset_;
};

template <typename T>
bool same_bits(const Exact<T>& a, const Exact<T>& b) {
    return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.get(), b.get(), size_t(a.size()) * sizeof(T)) == 0);
}

// An instruction set and a number of threads. All that the CPU has; more threads only in the build for them.
struct Way {
    khot::Isa isa;
    int threads;
};
const std::vector<Way>& ways();
void use(const Way& way);  // for kernels that are called from now on

// What the ways have found: the same bits with any number of threads, and with another set as near as the tolerance.
template <typename real>
void require_agreement(const std::vector<Exact<real>>& found, double tolerance) {
    for (size_t w = 1; w < found.size(); ++w) {
        if (ways()[w].isa == ways()[w - 1].isa) {
            require(same_bits(found[w - 1], found[w]), "the same bits with any number of threads");
            continue;
        }
        for (int64_t i = 0; i < found[w].size(); ++i) {
            const double a = double(found[w - 1][i]), b = double(found[w][i]);
            require(a == b || std::fabs(a - b) <= tolerance || (a != a && b != b), "instruction sets agree", a, b);
        }
    }
}

inline void require_same(const std::vector<Exact<int64_t>>& found) {
    for (size_t w = 1; w < found.size(); ++w) require(same_bits(found[w - 1], found[w]), "the same indices in every way");
}

// Gradients small enough that no product with a finite slope overflows.
template <typename real>
Exact<real> gradients(Input& in, int64_t count, int64_t offset) {
    Exact<real> g(count, offset);
    const int64_t kind = in.below(3);
    for (int64_t i = 0; i < count; ++i) {
        g[i] = kind == 0 ? real(2 * in.uniform() - 1) : kind == 1 ? real(int(in.byte()) % 3 - 1) : real(1);
    }
    return g;
}

// The targets, one for each group of kernels.
void gates(Input& in);
void shards(Input& in);
void halves(Input& in);
void order(Input& in);
void entries(Input& in);
void routing(Input& in);
void ranks(Input& in);
void small(Input& in);
void draws(Input& in);
void splitting(Input& in);
void poisson(Input& in);

}  // namespace fuzz
