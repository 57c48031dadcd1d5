// The Python module khot._native, by hand: addresses and sizes in, nothing out.
//
// No torch and no numpy headers, and only Python's stable ABI, so one binary serves every torch and every
// Python from 3.10. It trusts the addresses: khot.kernels.cpu is the one caller, and checks shapes,
// types and devices. What can be checked here (counts, ranges, null) raises instead of crashing.
#include "arguments.h"

#include "bind_draws.h"
#include "bind_gates.h"
#include "bind_order.h"
#include "bind_ranks.h"
#include "bind_routing.h"
#include "bind_rows.h"
#include "bind_splitting.h"
#include "dispatch.h"

namespace {

// Raise it by one whenever the signature of a function changes: the loader compares it with its own number and
// refuses a library left over from an older build.
constexpr int ABI = 12;

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
    KHOT_BOTH(gate_sums),
    KHOT_BOTH(gate_weights),
    KHOT_BOTH(slope_sums),
    KHOT_BOTH(slope_product),
    KHOT_BOTH(sigmoid_topk),
    {"sigmoid_topk_half", KHOT_FASTCALL(sigmoid_topk_half), METH_FASTCALL, nullptr},
    {"sigmoid_jacobian_half", KHOT_FASTCALL(sigmoid_jacobian_half), METH_FASTCALL, nullptr},
    KHOT_BOTH(laplace_topk),
    KHOT_BOTH(sparse_topk),
    KHOT_BOTH(normal_topk),
    KHOT_BOTH(hard_topk),
    KHOT_BOTH(count_between),
    KHOT_BOTH(collect_between),
    KHOT_BOTH(topk_entries),
    KHOT_BOTH(entries_jacobian),
    KHOT_BOTH(router_topk),
    KHOT_BOTH(router_gradient),
    KHOT_BOTH(argsort),
    KHOT_BOTH(isotonic),
    KHOT_BOTH(block_sums),
    KHOT_BOTH(soft_rank),
    KHOT_BOTH(soft_rank_jacobian),
    KHOT_BOTH(systematic),
    KHOT_BOTH(pivotal),
    {"subsets", KHOT_FASTCALL(subsets), METH_FASTCALL, nullptr},
    {"weighted_subsets", KHOT_FASTCALL(weighted_subsets), METH_FASTCALL, nullptr},
    KHOT_BOTH(shuffled_systematic),
    {"brewer", KHOT_FASTCALL(brewer), METH_FASTCALL, nullptr},
    {"eliminate", KHOT_FASTCALL(eliminate), METH_FASTCALL, nullptr},
    {"cube", KHOT_FASTCALL(cube), METH_FASTCALL, nullptr},
    KHOT_BOTH(poisson_inclusion),
    KHOT_BOTH(poisson_covariance),
    {"poisson_weights", KHOT_FASTCALL(poisson_weights), METH_FASTCALL, nullptr},
    KHOT_BOTH(small_rows),
    {"isa", isa, METH_NOARGS, "Name of the instruction set in use."},
    {"isa_supported", isa_supported, METH_NOARGS, "Names of the instruction sets this CPU can use."},
    {"openmp", openmp, METH_NOARGS, "Whether the library was built with OpenMP threads."},
    {nullptr, nullptr, 0, nullptr},
};

int fill(PyObject* module) {
    // Asked here because the slot for it came with Python 3.12, and older ones refuse slots they do not know.
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "khot works in the main interpreter alone, as torch does: use processes or threads instead of "
                        "sub-interpreters");
        return -1;
    }
    return PyModule_AddIntConstant(module, "ABI", ABI);
}

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(fill)},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
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
