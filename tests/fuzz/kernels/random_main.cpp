// The same targets without libFuzzer, on random bytes: so many cases of a seed, from a first one on.
//
//     kernels CASES SEED [FIRST]
//
// Whatever ends the process, it says how to run the case again. Sanitizers must end it by abort().
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

unsigned long long seed = 0, number = 0;

void tell(int signal) {
    std::fprintf(stderr, "fuzz: case %llu failed; to run it again: kernels 1 %llu %llu\n", number, seed, number);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) {
        std::fprintf(stderr, "usage: kernels CASES SEED [FIRST]\n");
        return 2;
    }
    const unsigned long long cases = std::strtoull(arguments[1], nullptr, 10);
    const unsigned long long first = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 0;
    seed = std::strtoull(arguments[2], nullptr, 10);
    std::signal(SIGABRT, tell);
    std::signal(SIGSEGV, tell);
    for (number = first; number < first + cases; ++number) {
        const unsigned long long words[2] = {seed, number};
        uint8_t name[sizeof words];
        std::memcpy(name, words, sizeof words);
        fuzz::Input source(name, sizeof name);
        std::vector<uint8_t> bytes(16 + size_t(source.random() % 240));
        for (uint8_t& byte : bytes) byte = uint8_t(source.random());
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    std::printf("fuzz: %llu random cases passed\n", cases);
    return 0;
}
