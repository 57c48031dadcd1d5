// The Python module khot._native, by hand: addresses and sizes in, nothing out.
//
// No torch and no numpy headers, and only Python's stable ABI, so one binary serves every torch and every
// Python from 3.10. It trusts the addresses: khot.kernels.cpu is the one caller, and checks shapes,
// types and devices. What can be checked here (counts, ranges, null) raises instead of crashing.
#include "arguments.h"

#include <climits>
#include <cstdint>

#include "dispatch.h"
#include "kernels.h"

namespace {

// Raise it by one whenever a signature below changes: the loader compares it with its own number and
// refuses a library left over from an older build.
constexpr int ABI = 6;

template <typename real>
PyObject* gate_jacobian(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const auto gate = static_cast<khot::GateKind>(arguments.integer("gate", 0, 2));
    const real* state = arguments.address<const real>();
    const real* grad = arguments.address<const real>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    real* out = arguments.address<real>();
    real* mean = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("state", state, rows > 0 && n > 0);
    arguments.check_address("grad", grad, rows > 0 && n > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("mean", mean, rows > 0);
    if (!arguments.ok()) return nullptr;
    Py_BEGIN_ALLOW_THREADS
    khot::gate_jacobian(gate, state, grad, temperature, temperature_stride, out, mean, rows, n, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

template <typename real>
PyObject* gated_topk(khot::GatedTopK<real>* kernel, const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const real* x = arguments.address<const real>();
    const unsigned char* mask = arguments.address<const unsigned char>();
    double k_number;
    real temperature_number;
    int64_t k_stride, temperature_stride;
    const double* k = arguments.per_row(&k_number, &k_stride);
    const real* temperature = arguments.per_row(&temperature_number, &temperature_stride);
    real* y = arguments.address<real>();
    real* state = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("k", k, rows > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("y", y, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    bool enough_memory;
    Py_BEGIN_ALLOW_THREADS
    enough_memory = kernel(x, mask, k, k_stride, temperature, temperature_stride, y, state, rows, n, threads);
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

template <typename real>
PyObject* sigmoid_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    return gated_topk<real>(khot::sigmoid_topk<real>, name, values, count);
}

template <typename real>
PyObject* laplace_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    return gated_topk<real>(khot::laplace_topk<real>, name, values, count);
}

template <typename real>
PyObject* sparse_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    return gated_topk<real>(khot::sparse_topk<real>, name, values, count);
}

template <typename real>
PyObject* hard_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 7);
    const real* x = arguments.address<const real>();
    const unsigned char* mask = arguments.address<const unsigned char>();
    int64_t number, k_stride;
    const int64_t* k = arguments.per_row(&number, &k_stride);
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("k", k, rows > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    bool enough_memory;
    Py_BEGIN_ALLOW_THREADS
    enough_memory = khot::hard_topk(x, mask, k, k_stride, out, rows, n, threads);
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

template <typename real>
PyObject* argsort(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 7);
    const real* x = arguments.address<const real>();
    const bool descending = arguments.integer("descending", 0, 1) != 0;
    real* sorted = arguments.address<real>();
    int64_t* indices = arguments.address<int64_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("indices", indices, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    bool enough_memory;
    Py_BEGIN_ALLOW_THREADS
    enough_memory = khot::argsort(x, descending, sorted, indices, rows, n, threads);
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

template <typename real>
PyObject* isotonic(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 10);
    const auto kind = static_cast<khot::Projection>(arguments.integer("kind", 0, 2));
    const real* s = arguments.address<const real>();
    const int64_t s_stride = arguments.integer("s_stride", 0, INT64_MAX);
    const real* w = arguments.address<const real>();
    const int64_t w_stride = arguments.integer("w_stride", 0, INT64_MAX);
    real* p = arguments.address<real>();
    int64_t* start = arguments.address<int64_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, 3 * sizeof(int64_t));
    arguments.check_address("s", s, rows > 0 && n > 0);
    arguments.check_address("w", w, rows > 0 && n > 0);
    arguments.check_address("p", p, rows > 0 && n > 0);
    arguments.check_address("start", start, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    bool enough_memory;
    Py_BEGIN_ALLOW_THREADS
    enough_memory = khot::isotonic(kind, s, s_stride, w, w_stride, p, start, rows, n, threads);
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

template <typename real>
PyObject* block_sums(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 6);
    const real* x = arguments.address<const real>();
    const int64_t* start = arguments.address<const int64_t>();
    real* sums = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("values", x, rows > 0 && n > 0);
    arguments.check_address("start", start, rows > 0 && n > 0);
    arguments.check_address("sums", sums, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    Py_BEGIN_ALLOW_THREADS
    khot::block_sums(x, start, sums, rows, n, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

template <typename real>
PyObject* soft_rank(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 8);
    const real* x = arguments.address<const real>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    const bool descending = arguments.integer("descending", 0, 1) != 0;
    real* ranks = arguments.address<real>();
    int64_t* order = arguments.address<int64_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, 4 * sizeof(int64_t));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("ranks", ranks, rows > 0 && n > 0);
    arguments.check_address("order", order, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    bool enough_memory;
    Py_BEGIN_ALLOW_THREADS
    enough_memory = khot::soft_rank(x, temperature, temperature_stride, descending, ranks, order, rows, n, threads);
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

template <typename real>
PyObject* soft_rank_jacobian(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 8);
    const real* grad = arguments.address<const real>();
    const int64_t* order = arguments.address<const int64_t>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    const bool descending = arguments.integer("descending", 0, 1) != 0;
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("grad", grad, rows > 0 && n > 0);
    arguments.check_address("order", order, rows > 0 && n > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    Py_BEGIN_ALLOW_THREADS
    khot::soft_rank_jacobian(grad, order, temperature, temperature_stride, descending, out, rows, n, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

template <typename real>
PyObject* systematic(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const real* probs = arguments.address<const real>();
    const int64_t* order = arguments.address<const int64_t>();
    const double* u = arguments.address<const double>();
    real* out = arguments.address<real>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(draws * rows, n, sizeof(int64_t));
    arguments.check_address("probs", probs, draws * rows > 0 && n > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("out", out, draws * rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    Py_BEGIN_ALLOW_THREADS
    khot::systematic(probs, order, u, out, draws, rows, n, k, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

template <typename real>
PyObject* pivotal(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 10);
    const real* probs = arguments.address<const real>();
    const int64_t* order = arguments.address<const int64_t>();
    const double* u = arguments.address<const double>();
    const int64_t uniforms = arguments.integer("uniforms", 0, INT64_MAX);
    real* out = arguments.address<real>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(draws * rows, n, 2 * sizeof(int64_t));
    arguments.check_address("probs", probs, draws * rows > 0 && n > 0);
    arguments.check_address("u", u, draws * rows > 0 && n > 1);
    arguments.check_address("out", out, draws * rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    bool enough_memory;
    Py_BEGIN_ALLOW_THREADS
    enough_memory = khot::pivotal(probs, order, u, uniforms, out, draws, rows, n, k, threads);
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject* subsets(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("subsets", values, count, 8);
    const double* weights = arguments.address<const double>();
    const double* u = arguments.address<const double>();
    int64_t* indices = arguments.address<int64_t>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 1, UINT32_MAX);
    const int64_t k = arguments.integer("k", 1, n < INT32_MAX ? n : INT32_MAX);
    const int threads = static_cast<int>(arguments.integer("threads", 1, INT_MAX));
    arguments.check_extent(n + 1, k + 1, sizeof(double));
    arguments.check_extent(draws * rows, k, sizeof(double));
    arguments.check_address("weights", weights, rows > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("indices", indices, draws * rows > 0);
    if (!arguments.ok()) return nullptr;
    bool enough_memory;
    Py_BEGIN_ALLOW_THREADS
    enough_memory = khot::subsets(weights, u, indices, draws, rows, n, k, threads);
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject* isa(PyObject*, PyObject*) { return PyUnicode_FromString(khot::isa_name(khot::isa_in_use())); }

PyObject* isa_supported(PyObject*, PyObject*) {
    PyObject* names = PyList_New(0);
    for (int i = 0; names != nullptr && i < khot::ISA_COUNT; ++i) {
        if (!khot::isa_supported(khot::Isa(i))) continue;
        PyObject* name = PyUnicode_FromString(khot::isa_name(khot::Isa(i)));
        if (name == nullptr || PyList_Append(names, name) != 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    if (names == nullptr) return nullptr;
    PyObject* result = PyList_AsTuple(names);
    Py_DECREF(names);
    return result;
}

PyObject* openmp(PyObject*, PyObject*) {
#ifdef _OPENMP
    Py_RETURN_TRUE;
#else
    Py_RETURN_FALSE;
#endif
}

// A METH_FASTCALL function has another type than PyCFunction; through void(*)() the cast is silent.
#define KHOT_FASTCALL(function) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function))

// The entries of a binding for float and for double, which are called name_f32 and name_f64.
#define KHOT_ENTRY(name, real, called)                                                          \
    {called, KHOT_FASTCALL(+[](PyObject*, PyObject* const* values, Py_ssize_t count) -> PyObject* { \
         return name<real>(called, values, count);                                              \
     }),                                                                                        \
     METH_FASTCALL, nullptr}
#define KHOT_BOTH(name) KHOT_ENTRY(name, float, #name "_f32"), KHOT_ENTRY(name, double, #name "_f64")

PyMethodDef methods[] = {
    KHOT_BOTH(gate_jacobian),
    KHOT_BOTH(sigmoid_topk),
    KHOT_BOTH(laplace_topk),
    KHOT_BOTH(sparse_topk),
    KHOT_BOTH(hard_topk),
    KHOT_BOTH(argsort),
    KHOT_BOTH(isotonic),
    KHOT_BOTH(block_sums),
    KHOT_BOTH(soft_rank),
    KHOT_BOTH(soft_rank_jacobian),
    KHOT_BOTH(systematic),
    KHOT_BOTH(pivotal),
    {"subsets", KHOT_FASTCALL(subsets), METH_FASTCALL, nullptr},
    {"isa", isa, METH_NOARGS, "Name of the instruction set in use."},
    {"isa_supported", isa_supported, METH_NOARGS, "Names of the instruction sets this CPU can use."},
    {"openmp", openmp, METH_NOARGS, "Whether the library was built with OpenMP threads."},
    {nullptr, nullptr, 0, nullptr},
};

int fill(PyObject* module) { return PyModule_AddIntConstant(module, "ABI", ABI); }

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(fill)},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},  // no state here: nothing for the GIL to guard
#endif
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Compiled kernels of khot.", 0, methods, slots, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&definition); }
