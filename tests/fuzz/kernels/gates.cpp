// The threshold family: weights that sum to k, and Jacobian products that sum to 0.
#include "kernels.h"
#include "problem.h"

namespace fuzz {
namespace {

using khot::GateKind;

struct Gate {
    GateKind kind;
    double norm;

    // F′ from the state, as gate_jacobian.cpp has it.
    double slope(double state) const {
        const double distance = std::fabs(state);
        switch (kind) {
            case GateKind::logistic:
            case GateKind::logistic_weight: return distance * (1 - distance);
            case GateKind::laplace: return distance;
            case GateKind::normal: return 0.4 * std::exp(-state * state / 2);
            case GateKind::sparse: return state > 0 && state < 1 ? 1 : 0;
            default: return state > 0 && state < 1 ? std::pow(state, 2 - norm) / (norm - 1) : 0;
        }
    }
};

template <typename real>
bool weights(const Gate& gate, const Problem<real>& p, real* y, real* state, real* threshold, int threads) {
    const int64_t rows = p.shape.rows, n = p.shape.n;
    const auto call = [&](auto kernel) {
        return kernel(p.x.get(), p.mask_or_null(), p.k.get(), p.k_stride, p.temperature.get(), p.temperature_stride, y, state,
                      rows, n, threads);
    };
    switch (gate.kind) {
        case GateKind::logistic:
        case GateKind::logistic_weight:
            return khot::sigmoid_topk(p.x.get(), p.mask_or_null(), p.k.get(), p.k_stride, p.temperature.get(),
                                      p.temperature_stride, y, state, threshold, rows, n, threads);
        case GateKind::laplace: return call(khot::laplace_topk<real>);
        case GateKind::normal: return call(khot::normal_topk<real>);
        default:
            return khot::sparse_topk(gate.norm, p.x.get(), p.mask_or_null(), p.k.get(), p.k_stride, p.temperature.get(),
                                     p.temperature_stride, y, state, rows, n, threads);
    }
}

// The Jacobian has the ones in its kernel: a product sums to 0, up to rounding beside Σw/τ; and it is 0 where w is.
template <typename real>
void require_product(const Gate& gate, const Problem<real>& problem, const Exact<real>& state, const Exact<real>& out) {
    const int64_t n = problem.shape.n;
    for (int64_t row = 0; row < problem.shape.rows; ++row) {
        if (facts(problem, row).nan) continue;
        double sum = 0, size = 0;
        const double rate = 1 / problem.temperature_of(row);
        for (int64_t i = 0; i < n; ++i) {
            const double weight = double(state[row * n + i]);
            size += gate.slope(weight) * rate;
            // Where a weight has rounded to 1, its slope is that of its score.
            if (gate.kind == GateKind::logistic_weight && weight > 0.5) size += double(std::numeric_limits<real>::epsilon()) * rate;
        }
        if (!(2 * size < double(std::numeric_limits<real>::max()))) continue;
        for (int64_t i = 0; i < n; ++i) {
            const double product = double(out[row * n + i]);
            require(std::isfinite(product), "a finite product", product, double(state[row * n + i]));
            sum += product;
        }
        const double flushed = (sizeof(real) == 4 ? 1e-20 : 1e-150) * rate * double(n);  // slopes below it may be 0
        const double least = double(std::numeric_limits<real>::min()) * double(n);
        const double tolerance = (sizeof(real) == 4 ? 1e-4 : 1e-11) * size + flushed + least;
        require(std::fabs(sum) <= tolerance, "a product that sums to 0", sum, size);
    }
}

template <typename real>
void any_gate(Input& in, const Gate& gate, const char* name) {
    const bool by_weight = gate.kind == GateKind::logistic_weight;
    const Problem<real> problem(in, shape(in, 0, INT64_MAX), in.flag() ? Values::any : Values::finite, in.flag());
    doing(name, sizeof(real), problem.shape);
    const int64_t size = problem.shape.size(), rows = problem.shape.rows, offset = in.below(3);
    const bool keeps = by_weight || in.flag();
    const Exact<real> grad = gradients<real>(in, size, offset);
    std::vector<Exact<real>> found;
    for (const Way& way : ways()) {
        use(way);
        Exact<real> y(size, offset), state(keeps && !by_weight ? size : 0), threshold(by_weight ? 2 * rows : 0);
        const bool enough = weights(gate, problem, y.get(), keeps && !by_weight ? state.get() : nullptr,
                                    by_weight ? threshold.get() : nullptr, way.threads);
        require(enough, "enough memory");
        require_weights(problem, y);
        if (keeps) {
            Exact<real> out(size, offset), mean(by_weight ? 0 : rows);
            const Exact<real>& saved = by_weight ? y : state;
            khot::gate_jacobian(gate.kind, gate.kind == GateKind::power ? gate.norm : 2, saved.get(),
                                by_weight ? problem.x.get() : nullptr, by_weight ? threshold.get() : nullptr, grad.get(),
                                problem.temperature.get(), problem.temperature_stride, out.get(),
                                by_weight ? nullptr : mean.get(), rows, problem.shape.n, way.threads);
            require_product(gate, problem, saved, out);
        }
        found.push_back(std::move(y));
    }
    require_agreement(found, weight_tolerance<real>(problem.shape.n, gate.norm));
}

}  // namespace

void gates(Input& in) {
    static const Gate all[] = {{GateKind::logistic, 2}, {GateKind::logistic_weight, 2}, {GateKind::laplace, 2},
                               {GateKind::sparse, 2},   {GateKind::normal, 2},          {GateKind::power, 1.5},
                               {GateKind::power, 1.25}, {GateKind::power, 4.0 / 3},     {GateKind::power, 1.9}};
    static const char* const names[] = {"sigmoid_topk", "sigmoid_topk with thresholds", "laplace_topk",
                                        "sparse_topk",  "normal_topk",                  "sparse_topk of norm 1.5",
                                        "sparse_topk of norm 1.25", "sparse_topk of norm 4/3", "sparse_topk of norm 1.9"};
    const int64_t chosen = in.below(9);
    if (in.flag()) {
        any_gate<float>(in, all[chosen], names[chosen]);
    } else {
        any_gate<double>(in, all[chosen], names[chosen]);
    }
}

}  // namespace fuzz
