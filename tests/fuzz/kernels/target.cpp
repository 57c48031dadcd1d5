// The entry of the fuzzer: the first byte chooses a group of kernels, the others what they are called with.
//
// It stands in for csrc/dispatch.cpp too, so that one process can use every instruction set of its CPU.
#include <atomic>
#include <cstdio>

#include "checks.h"

#define isa_in_use isa_at_start
#include "dispatch.cpp"
#undef isa_in_use

namespace {

std::atomic<khot::Isa> isa{khot::Isa::base};
const char* kernel = "";
size_t bytes_of_real = 0;
fuzz::Shape of{0, 0};
int threads = 1;

void (*const TARGETS[])(fuzz::Input&) = {fuzz::gates, fuzz::gates, fuzz::shards, fuzz::halves, fuzz::order, fuzz::entries,
                                         fuzz::routing, fuzz::ranks, fuzz::small, fuzz::draws, fuzz::splitting, fuzz::poisson};

}  // namespace

namespace khot {

Isa isa_in_use() { return isa.load(std::memory_order_relaxed); }

}  // namespace khot

namespace fuzz {

void doing(const char* name, size_t size_of_real, Shape shape) {
    kernel = name;
    bytes_of_real = size_of_real;
    of = shape;
}

void failed(const char* rule, double got, double wanted) {
    std::fprintf(stderr, "fuzz: %s, float%zu, %lld rows of %lld, %s, %d threads: not %s: %.17g, %.17g\n", kernel,
                 8 * bytes_of_real, static_cast<long long>(of.rows), static_cast<long long>(of.n),
                 khot::isa_name(khot::isa_in_use()), threads, rule, got, wanted);
    std::abort();
}

const std::vector<Way>& ways() {
    static const std::vector<Way> all = [] {
        std::vector<Way> found;
        for (int i = 0; i < khot::ISA_COUNT; ++i) {
            if (!khot::isa_supported(khot::Isa(i))) continue;
            found.push_back({khot::Isa(i), 1});
#ifdef KHOT_FUZZ_THREADS
            found.push_back({khot::Isa(i), 3});
#endif
        }
        return found;
    }();
    return all;
}

void use(const Way& way) {
    isa.store(way.isa, std::memory_order_relaxed);
    threads = way.threads;
}

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    fuzz::Input in(data, size);
    TARGETS[in.byte() % (sizeof(TARGETS) / sizeof(TARGETS[0]))](in);
    return 0;
}
