// Runs the kernels on the cases of vectors.py, read from standard input, and compares. No Python is needed, so this
// can be compiled for another processor and run in an emulator: see tools/test_cross.sh.
//
// Every case is computed in float and in double, by one thread and by two, which must give the same bits.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "dispatch.h"
#include "kernels.h"

namespace {

using Numbers = std::vector<double>;

struct Case {
    std::string name;
    int64_t rows = 0, n = 0;
    double k = 0, temperature = 1, option = 0;

    std::string text(const char* what, const char* type) const {
        char line[200];
        std::snprintf(line, sizeof line, "%s %g (rows %ld, n %ld, k %g), %s in %s", name.c_str(), option, long(rows),
                      long(n), k, what, type);
        return line;
    }
};

int failures = 0;
std::map<std::string, int> passed;

void fail(const std::string& text) {
    std::printf("FAILED: %s\n", text.c_str());
    ++failures;
}

double number() {
    std::string token;
    if (!(std::cin >> token)) {
        std::fprintf(stderr, "kernels.cpp: the file of cases ends too early\n");
        std::exit(2);
    }
    return std::strtod(token.c_str(), nullptr);  // unlike >>, it reads hexadecimal floats
}

Numbers array() {
    Numbers values(static_cast<size_t>(number()));
    for (double& value : values) value = number();
    return values;
}

template <typename To>
std::vector<To> as(const Numbers& values) {
    return std::vector<To>(values.begin(), values.end());
}

template <typename real>
constexpr const char* type_name = sizeof(real) == 4 ? "float" : "double";
// What rounding may cost: results are of the size of 1, products of that of 1/τ.
template <typename real>
constexpr double tolerance = sizeof(real) == 4 ? 4e-6 : 1e-11;

template <typename Found>
void compare(const Case& c, const char* what, const char* type, const std::vector<Found>& found, const Numbers& expected,
             double allowed) {
    if (found.size() != expected.size()) return fail(c.text(what, type) + ": wrong length");
    for (size_t i = 0; i < found.size(); ++i) {
        const double apart = std::fabs(double(found[i]) - expected[i]);
        if (!(apart <= allowed * std::fmax(1.0, std::fabs(expected[i])))) {
            char numbers[120];
            std::snprintf(numbers, sizeof numbers, ": %.17g instead of %.17g at %zu", double(found[i]), expected[i], i);
            return fail(c.text(what, type) + numbers);
        }
    }
    ++passed[c.name];
}

// The results for one thread and for two, written by call(threads, out); the bits must be the same.
template <typename Value, typename Call>
std::vector<Value> computed(const Case& c, size_t size, const Call& call) {
    std::vector<Value> one(size), two(size);
    if (!call(1, one.data()) || !call(2, two.data())) fail(c.text("memory", "any type"));
    if (size > 0 && std::memcmp(one.data(), two.data(), size * sizeof(Value)) != 0)
        fail(c.text("one thread and two differ", sizeof(Value) == 4 ? "float" : "double"));
    return one;
}

template <typename real>
void gate(const Case& c, double norm, const Numbers& mask, const Numbers& x, const Numbers& y, const Numbers& grad,
          const Numbers& product) {
    const auto scores = as<real>(x), g = as<real>(grad);
    const auto allowed = as<unsigned char>(mask);
    const unsigned char* excluded = allowed.empty() ? nullptr : allowed.data();
    const real tau = real(c.temperature);
    std::vector<real> state(x.size());
    const auto weights = computed<real>(c, x.size(), [&](int threads, real* out) {
        switch (int(c.option)) {
            case 0:
                return khot::sigmoid_topk(scores.data(), excluded, &c.k, 0, &tau, 0, out, state.data(),
                                          static_cast<real*>(nullptr), c.rows, c.n, threads);
            case 1:
                return khot::laplace_topk(scores.data(), excluded, &c.k, 0, &tau, 0, out, state.data(), c.rows, c.n, threads);
            case 2:
                return khot::sparse_topk(norm, scores.data(), excluded, &c.k, 0, &tau, 0, out, state.data(), c.rows, c.n,
                                         threads);
            default:
                return khot::normal_topk(scores.data(), excluded, &c.k, 0, &tau, 0, out, state.data(), c.rows, c.n, threads);
        }
    });
    compare(c, "weights", type_name<real>, weights, y, tolerance<real>);
    const auto kind = norm != 2 ? khot::GateKind::power : khot::GateKind(int(c.option));
    const auto found = computed<real>(c, x.size(), [&](int threads, real* out) {
        khot::gate_jacobian(kind, norm, state.data(), static_cast<real*>(nullptr), static_cast<real*>(nullptr), g.data(),
                            &tau, 0, out, static_cast<real*>(nullptr), c.rows, c.n, threads);
        return true;
    });
    // The slope of a power near 0 has a power of the weight's error.
    const double steep = norm != 2 && sizeof(real) == 4 ? 50 : 1;
    compare(c, "gradient", type_name<real>, found, product, steep * 4 * tolerance<real> / c.temperature);
}

template <typename real>
void hard(const Case& c, const Numbers& x, const Numbers& expected) {
    const auto scores = as<real>(x);
    const int64_t k = int64_t(c.k);
    const auto found = computed<real>(c, x.size(), [&](int threads, real* out) {
        return khot::hard_topk(scores.data(), static_cast<unsigned char*>(nullptr), &k, 0, out, c.rows, c.n, threads);
    });
    compare(c, "indicator", type_name<real>, found, expected, 0);
}

template <typename real>
void argsort(const Case& c, const Numbers& x, const Numbers& expected) {
    const auto scores = as<real>(x);
    const auto found = computed<int64_t>(c, x.size(), [&](int threads, int64_t* out) {
        return khot::argsort(scores.data(), c.option != 0, static_cast<real*>(nullptr), out, c.rows, c.n, threads);
    });
    compare(c, "indices", type_name<real>, found, expected, 0);
}

template <typename real>
void entries(const Case& c, const Numbers& x, const Numbers& indices, const Numbers& weights, const Numbers& values) {
    const auto scores = as<real>(x);
    const real tau = real(c.temperature);
    std::vector<int64_t> at(indices.size());
    std::vector<real> value(indices.size());
    const auto found = computed<real>(c, indices.size(), [&](int threads, real* out) {
        return khot::topk_entries(scores.data(), static_cast<unsigned char*>(nullptr), int64_t(c.k), &tau, 0, false,
                                  at.data(), out, value.data(), static_cast<real*>(nullptr), c.rows, c.n, threads);
    });
    compare(c, "indices", type_name<real>, at, indices, 0);
    compare(c, "weights", type_name<real>, found, weights, tolerance<real>);
    compare(c, "values", type_name<real>, value, values, 0);
}

template <typename real>
void soft_rank(const Case& c, const Numbers& x, const Numbers& y, const Numbers& grad, const Numbers& product) {
    const auto scores = as<real>(x), g = as<real>(grad);
    const real tau = real(c.temperature);
    std::vector<int64_t> order(x.size());
    const auto ranks = computed<real>(c, x.size(), [&](int threads, real* out) {
        return khot::soft_rank(scores.data(), &tau, 0, true, out, order.data(), c.rows, c.n, threads);
    });
    compare(c, "ranks", type_name<real>, ranks, y, tolerance<real>);
    const auto found = computed<real>(c, x.size(), [&](int threads, real* out) {
        khot::soft_rank_jacobian(g.data(), order.data(), &tau, 0, true, out, c.rows, c.n, threads);
        return true;
    });
    compare(c, "gradient", type_name<real>, found, product, 4 * tolerance<real> / c.temperature);
}

template <typename real>
void small(const Case& c, double window, const Numbers& table, const Numbers& x, const Numbers& y, const Numbers& grad,
           const Numbers& product) {
    const auto scores = as<real>(x), g = as<real>(grad);
    std::vector<khot::NetworkLayer> layers;
    for (size_t i = 0; i + 3 < table.size(); i += 4)
        layers.push_back({int64_t(table[i]), int64_t(table[i + 1]), int64_t(table[i + 2]), int64_t(table[i + 3])});
    for (const bool backward : {false, true}) {
        const auto found = computed<real>(c, x.size(), [&](int threads, real* out) {
            return khot::small_rows(khot::SmallKind(int(c.option)), scores.data(), backward ? g.data() : nullptr,
                                    &c.temperature, 0, &window, 0, layers.data(), int64_t(layers.size()), false, false, out,
                                    c.rows, c.n, int64_t(c.k), threads) == 1;
        });
        // Rounds and comparisons multiply the rounding of their scores.
        const double allowed = 20 * tolerance<real> / c.temperature;
        compare(c, backward ? "gradient" : "weights", type_name<real>, found, backward ? product : y, allowed);
    }
}

template <typename real>
void router(const Case& c, const Numbers& x, const Numbers& indices, const Numbers& weights, const Numbers& grad,
            const Numbers& product) {
    const auto scores = as<real>(x), g = as<real>(grad);
    const int64_t k = int64_t(c.k);
    std::vector<int64_t> at(indices.size());
    std::vector<real> sums(2 * size_t(c.rows));
    const auto found = computed<real>(c, indices.size(), [&](int threads, real* out) {
        return khot::router_topk(scores.data(), k, c.option != 0, at.data(), out, sums.data(), c.rows, c.n, threads);
    });
    compare(c, "indices", type_name<real>, at, indices, 0);
    compare(c, "weights", type_name<real>, found, weights, tolerance<real>);
    const auto moved = computed<real>(c, x.size(), [&](int threads, real* out) {
        khot::router_gradient(scores.data(), at.data(), found.data(), sums.data(), g.data(), c.option != 0, out, c.rows, c.n,
                              k, threads);
        return true;
    });
    compare(c, "gradient", type_name<real>, moved, product, 4 * tolerance<real>);
}

template <typename real>
void systematic(const Case& c, const Numbers& probs, const Numbers& u, const Numbers& expected) {
    const auto pi = as<real>(probs);
    const auto found = computed<real>(c, expected.size(), [&](int threads, real* out) {
        khot::systematic(pi.data(), static_cast<int64_t*>(nullptr), u.data(), out, int64_t(u.size()), c.rows, c.n,
                         int64_t(c.k), threads);
        return true;
    });
    compare(c, "draws", type_name<real>, found, expected, 0);
}

// Exactly k units in each draw, and each unit within five standard deviations of its probability.
void check_draws(const Case& c, const char* type, const Numbers& probs, const std::vector<std::vector<int64_t>>& draws) {
    Numbers share(probs.size());
    for (const auto& drawn : draws) {
        if (int64_t(drawn.size()) != int64_t(c.k)) return fail(c.text("not k units", type));
        for (const int64_t unit : drawn) share[size_t(unit)] += 1.0 / double(draws.size());
    }
    for (size_t i = 0; i < probs.size(); ++i) {
        const double deviation = std::sqrt(probs[i] * (1 - probs[i]) / double(draws.size()));
        if (!(std::fabs(share[i] - probs[i]) <= 5 * deviation + 1e-9)) return fail(c.text("frequencies", type));
    }
    ++passed[c.name];
}

template <typename real>
void pivotal(const Case& c, const Numbers& probs, const Numbers& u) {
    const auto pi = as<real>(probs);
    const int64_t uniforms = 15, draws = int64_t(u.size()) / uniforms;
    const auto out = computed<real>(c, size_t(draws * c.n), [&](int threads, real* out) {
        return khot::pivotal(pi.data(), static_cast<int64_t*>(nullptr), u.data(), uniforms, out, draws, c.rows, c.n,
                             int64_t(c.k), threads);
    });
    std::vector<std::vector<int64_t>> drawn(static_cast<size_t>(draws));
    for (int64_t i = 0; i < draws * c.n; ++i)
        if (out[size_t(i)] != 0) drawn[size_t(i / c.n)].push_back(i % c.n);
    check_draws(c, type_name<real>, probs, drawn);
}

void brewer(const Case& c, const Numbers& probs, const Numbers& u) {
    const int64_t k = int64_t(c.k), draws = int64_t(u.size()) / k;
    const auto out = computed<int64_t>(c, u.size(), [&](int threads, int64_t* out) {
        return khot::brewer(probs.data(), u.data(), out, draws, c.rows, c.n, k, threads);
    });
    std::vector<std::vector<int64_t>> drawn;
    for (int64_t i = 0; i < draws; ++i) drawn.emplace_back(out.begin() + i * k, out.begin() + (i + 1) * k);
    check_draws(c, "double", probs, drawn);
}

template <typename real>
void poisson(const Case& c, const Numbers& theta, double start, const Numbers& pi) {
    const auto parameters = as<real>(theta);
    const double reference = 0;
    double exactly = 0;
    const auto found = computed<real>(c, theta.size(), [&](int threads, real* out) {
        return khot::poisson_inclusion(parameters.data(), &reference, &start, out, &exactly, c.rows, c.n, int64_t(c.k), threads);
    });
    compare(c, "inclusion probabilities", type_name<real>, found, pi, tolerance<real>);
}

float from_half(int kind, uint16_t bits) {
    const int sign = bits >> 15 ? -1 : 1;
    if (kind == 0) {  // bfloat16: the upper half of a float
        const uint32_t wide = uint32_t(bits) << 16;
        float value;
        std::memcpy(&value, &wide, sizeof value);
        return value;
    }
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    return float(sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25)));
}

void half(const Case& c, const Numbers& x, const Numbers& y) {
    const auto scores = as<uint16_t>(x);
    const int kind = int(c.option);
    const auto out = computed<uint16_t>(c, x.size(), [&](int threads, uint16_t* out) {
        return khot::sigmoid_topk_half(khot::HalfKind(kind), scores.data(), c.k, float(c.temperature), out, nullptr, c.rows,
                                       c.n, threads);
    });
    std::vector<float> found;
    for (const uint16_t bits : out) found.push_back(from_half(kind, bits));
    compare(c, "weights", kind == 0 ? "bfloat16" : "float16", found, y, kind == 0 ? 1.0 / 256 : 1.0 / 2048);
}

void run(const Case& c) {
    if (c.name == "gate") {
        const Numbers norm = array(), mask = array(), x = array(), y = array(), g = array(), product = array();
        gate<float>(c, norm.at(0), mask, x, y, g, product);
        gate<double>(c, norm.at(0), mask, x, y, g, product);
    } else if (c.name == "half") {
        const Numbers x = array(), y = array();
        half(c, x, y);
    } else if (c.name == "hard") {
        const Numbers x = array(), y = array();
        hard<float>(c, x, y);
        hard<double>(c, x, y);
    } else if (c.name == "argsort") {
        const Numbers x = array(), y = array();
        argsort<float>(c, x, y);
        argsort<double>(c, x, y);
    } else if (c.name == "entries") {
        const Numbers x = array(), indices = array(), weights = array(), values = array();
        entries<float>(c, x, indices, weights, values);
        entries<double>(c, x, indices, weights, values);
    } else if (c.name == "soft_rank") {
        const Numbers x = array(), y = array(), g = array(), product = array();
        soft_rank<float>(c, x, y, g, product);
        soft_rank<double>(c, x, y, g, product);
    } else if (c.name == "small") {
        const Numbers window = array(), layers = array(), x = array(), y = array(), g = array(), product = array();
        small<float>(c, window.at(0), layers, x, y, g, product);
        small<double>(c, window.at(0), layers, x, y, g, product);
    } else if (c.name == "router") {
        const Numbers x = array(), indices = array(), weights = array(), g = array(), product = array();
        router<float>(c, x, indices, weights, g, product);
        router<double>(c, x, indices, weights, g, product);
    } else if (c.name == "systematic") {
        const Numbers probs = array(), u = array(), expected = array();
        systematic<float>(c, probs, u, expected);
        systematic<double>(c, probs, u, expected);
    } else if (c.name == "pivotal") {
        const Numbers probs = array(), u = array();
        pivotal<float>(c, probs, u);
        pivotal<double>(c, probs, u);
    } else if (c.name == "brewer") {
        const Numbers probs = array(), u = array();
        brewer(c, probs, u);
    } else if (c.name == "poisson") {
        const Numbers theta = array(), start = array(), pi = array();
        poisson<float>(c, theta, start.at(0), pi);
        poisson<double>(c, theta, start.at(0), pi);
    } else {
        std::fprintf(stderr, "kernels.cpp: no kernel %s\n", c.name.c_str());
        std::exit(2);
    }
}

}  // namespace

int main() {
    std::string word;
    while (std::cin >> word) {
        Case c;
        std::cin >> c.name;
        c.rows = int64_t(number()), c.n = int64_t(number());
        c.k = number(), c.temperature = number(), c.option = number();
        run(c);
    }
    std::printf("instruction set %s:", khot::isa_name(khot::isa_in_use()));
    for (const auto& [name, count] : passed) std::printf(" %s %d", name.c_str(), count);
    std::printf(" comparisons passed, %d failed\n", failures);
    return failures == 0 && !passed.empty() ? 0 : 1;
}
