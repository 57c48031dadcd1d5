// Parts of rows with a given threshold: sums, weights and products, and the entries between two values.
#include "kernels.h"
#include "problem.h"

namespace fuzz {
namespace {

template <typename real>
Exact<real> numbers(Input& in, int64_t count, double scale) {
    Exact<real> found(count);
    for (int64_t i = 0; i < count; ++i) found[i] = within_range<real>(scale * in.normal());
    return found;
}

template <typename real>
void gate_kernels(Input& in) {
    static const khot::GateKind gates[] = {khot::GateKind::logistic, khot::GateKind::laplace, khot::GateKind::sparse};
    const khot::GateKind gate = in.one_of(gates);
    const Shape of = shape(in, 0, INT64_MAX);
    doing("gate_sums, gate_weights, slope_sums and slope_product", sizeof(real), of);
    const int64_t rows = of.rows, n = of.n, offset = in.below(3);
    Exact<real> x(of.size(), offset), anchor(rows), tau(rows);
    fill(in, x.get(), x.size(), Values::infinite);
    for (int64_t row = 0; row < rows; ++row) {
        tau[row] = temperature<real>(in);
        anchor[row] = n > 0 && in.flag() ? x[row * n + in.below(n)] : special<real>(in, Values::finite);
        if (!std::isfinite(anchor[row])) anchor[row] = 0;
    }
    const Exact<real> shift = numbers<real>(in, rows, 10), fine = numbers<real>(in, rows, 1e-3);
    const Exact<real> grad = gradients<real>(in, of.size(), offset), mean = gradients<real>(in, rows, 0);
    Exact<unsigned char> ties(rows);
    for (int64_t row = 0; row < rows; ++row) ties[row] = in.flag();
    const khot::GateShard<real> at = {anchor.get(), tau.get(), shift.get(), fine.get()};
    std::vector<Exact<real>> found;
    for (const Way& way : ways()) {
        use(way);
        Exact<real> y(of.size(), offset), product(of.size());
        Exact<double> sums(rows * 2 * khot::GATE_SUM_TERMS), slopes(rows * khot::SLOPE_SUM_TERMS);
        khot::gate_weights(gate, at, x.get(), y.get(), rows, n, way.threads);
        const bool enough = khot::gate_sums(gate, x.get(), anchor.get(), tau.get(), shift.get(), fine.get(), ties.get(),
                                            sums.get(), rows, n, way.threads) &&
                            khot::slope_sums(gate, at, x.get(), grad.get(), slopes.get(), rows, n, way.threads);
        require(enough, "enough memory");
        khot::slope_product(gate, at, x.get(), grad.get(), mean.get(), product.get(), rows, n, way.threads);
        for (int64_t row = 0; row < rows; ++row) {
            double count = 0, finite = 0;
            for (int t = 0; t < 2 * khot::GATE_SUM_TERMS; ++t) {
                const double sum = sums[row * 2 * khot::GATE_SUM_TERMS + t];
                require(std::isfinite(sum), "a finite sum", sum, t);
                if (t % khot::GATE_SUM_TERMS == khot::GATE_SUM_TERMS - 1) count += sum;
            }
            for (int t = 0; t < khot::SLOPE_SUM_TERMS; ++t) {
                require(std::isfinite(slopes[row * khot::SLOPE_SUM_TERMS + t]), "a finite sum of slopes", t);
            }
            for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                finite += std::isfinite(x[i]);
                require(y[i] >= 0 && y[i] <= 1, "a weight in [0, 1]", double(y[i]), double(x[i]));
                require(std::isfinite(product[i]), "a finite product", double(product[i]), double(x[i]));
            }
            require(count == finite, "as many entries as there are", count, finite);
        }
        found.push_back(std::move(y));
    }
    // Scores and thresholds of any size are rounded once before they are gates.
    require_agreement(found, 64 * double(std::numeric_limits<real>::epsilon()));
}

template <typename real>
void between(Input& in) {
    const Shape of = shape(in, 0, INT64_MAX);
    doing("count_between and collect_between", sizeof(real), of);
    const int64_t rows = of.rows, n = of.n;
    Exact<real> x(of.size(), in.below(3)), low(rows), high(rows);
    fill(in, x.get(), x.size(), Values::any);
    for (int64_t row = 0; row < rows; ++row) {
        low[row] = n > 0 && in.flag() ? x[row * n + in.below(n)] : special<real>(in, Values::infinite);
        high[row] = n > 0 && in.flag() ? x[row * n + in.below(n)] : special<real>(in, Values::infinite);
    }
    for (const Way& way : ways()) {
        use(way);
        Exact<int64_t> above(rows), inside(rows), starts(rows);
        khot::count_between(x.get(), low.get(), high.get(), above.get(), inside.get(), rows, n, way.threads);
        int64_t total = 0;
        for (int64_t row = 0; row < rows; ++row) {
            starts[row] = total;
            total += inside[row];
        }
        Exact<real> out(total);
        khot::collect_between(x.get(), low.get(), high.get(), starts.get(), out.get(), rows, n, way.threads);
        int64_t next = 0;
        for (int64_t row = 0; row < rows; ++row) {
            int64_t higher = 0;
            for (int64_t i = row * n; i < (row + 1) * n; ++i) {
                higher += x[i] > high[row];
                if (x[i] >= low[row] && x[i] <= high[row]) require(out[next++] == x[i], "the entries in their order", i);
            }
            require(above[row] == higher, "the number above", double(above[row]), double(higher));
        }
        require(next == total, "the number between", double(total), double(next));
    }
}

}  // namespace

void shards(Input& in) {
    switch (in.below(4)) {
        case 0: gate_kernels<float>(in); break;
        case 1: gate_kernels<double>(in); break;
        case 2: between<float>(in); break;
        default: between<double>(in);
    }
}

}  // namespace fuzz
