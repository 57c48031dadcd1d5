// The same targets without libFuzzer: random bytes, so many cases from a seed, or the bytes of files.
//
//     kernels CASES SEED LAST     LAST is a file for the bytes of the case that runs: after a failure, run it again
//     kernels FILE…
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

int of_file(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (file == nullptr) {
        std::fprintf(stderr, "fuzz: %s: no such file\n", path);
        return 2;
    }
    std::vector<uint8_t> bytes;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) bytes.push_back(uint8_t(c));
    std::fclose(file);
    return LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void keep(const char* path, const std::vector<uint8_t>& bytes) {
    std::FILE* file = std::fopen(path, "wb");
    if (file == nullptr) return;
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
}

}  // namespace

int main(int count, char** arguments) {
    char* end = nullptr;
    const long long cases = count == 4 ? std::strtoll(arguments[1], &end, 10) : 0;
    if (end == nullptr || *end != '\0') {
        for (int i = 1; i < count; ++i) {
            if (const int code = of_file(arguments[i])) return code;
        }
        return 0;
    }
    for (long long i = 0; i < cases; ++i) {
        const unsigned long long words[2] = {std::strtoull(arguments[2], nullptr, 10), static_cast<unsigned long long>(i)};
        uint8_t name[sizeof words];
        std::memcpy(name, words, sizeof words);
        fuzz::Input source(name, sizeof name);
        std::vector<uint8_t> bytes(16 + size_t(source.random() % 240));
        for (uint8_t& byte : bytes) byte = uint8_t(source.random());
        keep(arguments[3], bytes);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    std::printf("fuzz: %lld random cases passed\n", cases);
    return 0;
}
