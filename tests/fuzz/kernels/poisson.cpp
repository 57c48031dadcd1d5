// Conditional Poisson sampling: inclusion probabilities, covariances times a vector, and odds with given ones.
#include <limits>

#include "inclusion.h"
#include "kernels.h"

namespace fuzz {
namespace {

constexpr double FAR = 200;

// c with Σσ(t + c) = k, where t is clamped as the kernel does it.
double tilt(const std::vector<double>& t, double k) {
    double low = -1e5, high = 1e5;
    for (int i = 0; i < 60; ++i) {
        const double middle = (low + high) / 2;
        double sum = 0;
        for (double value : t) sum += 1 / (1 + std::exp(-std::fmin(std::fmax(value + middle, -FAR), FAR)));
        (sum > k ? high : low) = middle;
    }
    return (low + high) / 2;
}

template <typename real>
void of_parameters(Input& in) {
    static const double scales[] = {0, 1, 3, 30, 1e3};
    const Shape of = shape(in, 2, 64);
    const int64_t rows = of.rows < 6 ? of.rows : 6, n = of.n, k = 1 + in.below(n - 1);
    doing("poisson_inclusion and poisson_covariance", sizeof(real), {rows, n});
    const double scale = in.one_of(scales), eps = sizeof(real) == 4 ? 1e-6 : 1e-12;
    Exact<real> theta(rows * n, in.below(2));
    Exact<double> reference(rows), start(rows);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = row * n; i < (row + 1) * n; ++i) theta[i] = real(scale * in.normal());
        reference[row] = double(theta[row * n + in.below(n)]);
        std::vector<double> t(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) t[size_t(i)] = double(theta[row * n + i]) - reference[row];
        start[row] = tilt(t, double(k));
    }
    const Exact<real> grad = gradients<real>(in, rows * n, 0);
    std::vector<Exact<real>> found;
    for (const Way& way : ways()) {
        use(way);
        Exact<real> pi(rows * n), out(rows * n);
        Exact<double> exactly(rows);
        const bool enough = khot::poisson_inclusion(theta.get(), reference.get(), start.get(), pi.get(), exactly.get(), rows, n, k,
                                                    way.threads) &&
                            khot::poisson_covariance(theta.get(), reference.get(), start.get(), grad.get(), out.get(), rows, n, k,
                                                     way.threads);
        require(enough, "enough memory");
        for (int64_t row = 0; row < rows; ++row) {
            double sum = 0, total = 0;
            require(exactly[row] > 0 && exactly[row] <= 1 + 1e-9, "a probability", exactly[row]);
            for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                require(pi[i] >= 0 && pi[i] <= 1 + real(eps), "an inclusion probability", double(pi[i]), double(theta[i]));
                require(std::isfinite(out[i]), "a finite product", double(out[i]));
                sum += double(pi[i]);
                total += double(out[i]);
            }
            require(std::fabs(sum - double(k)) <= eps * double(n), "Σπ = k", sum, double(k));
            require(std::fabs(total) <= 10 * eps * double(n), "a product that sums to 0", total);
        }
        found.push_back(std::move(pi));
    }
    require_agreement(found, eps);
}

void of_inclusions(Input& in) {
    const Shape of = shape(in, 2, 48);
    const int64_t rows = of.rows < 6 ? of.rows : 6, n = of.n, k = 1 + in.below(n - 1);
    doing("poisson_weights", 8, {rows, n});
    const int64_t most = 1 + in.below(12);
    const Exact<double> probs = inclusions<double>(in, rows, n, k);
    for (const Way& way : ways()) {
        use(way);
        Exact<double> odds(rows * n), error(rows);
        require(khot::poisson_weights(probs.get(), 1e-11, most, odds.get(), error.get(), rows, n, k, way.threads),
                "enough memory");
        for (int64_t i = 0; i < rows * n; ++i) {
            const bool open = probs[i] > 0 && probs[i] < 1;
            require(std::isfinite(odds[i]) && (open ? odds[i] > 0 : odds[i] == 1), "odds", odds[i], probs[i]);
        }
        for (int64_t row = 0; row < rows; ++row) require(error[row] >= 0, "an error", error[row]);
    }
}

}  // namespace

void poisson(Input& in) {
    switch (in.below(3)) {
        case 0: of_parameters<float>(in); break;
        case 1: of_parameters<double>(in); break;
        default: of_inclusions(in);
    }
}

}  // namespace fuzz
