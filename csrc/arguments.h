// Reads and checks the arguments of a function of the Python module, and runs its kernel.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <climits>
#include <cstdint>
#include <type_traits>

namespace {

// Positional integer arguments, read in order. After the first failure the rest read as 0 and the Python
// exception stays set, so a binding reads everything and asks ok() once.
class Arguments {
public:
    Arguments(const char* function, PyObject* const* values, Py_ssize_t count, Py_ssize_t expected)
        : function_(function), values_(values) {
        if (count != expected) {
            PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", function, expected, count);
            ok_ = false;
        }
    }

    bool ok() const { return ok_; }

    template <typename real>
    real* address() {
        if (!ok_) return nullptr;
        void* value = PyLong_AsVoidPtr(values_[next_++]);
        ok_ = value != nullptr || PyErr_Occurred() == nullptr;
        return static_cast<real*>(value);
    }

    // A value for each row: the address of an array with one element a row, or a Python float for all rows.
    // The stride is 1 or 0, and the address of a float is that of `number`, which must outlive the call.
    template <typename real>
    const real* per_row(real* number, int64_t* stride) {
        *stride = 1;
        if (!ok_) return nullptr;
        if (!PyFloat_Check(values_[next_])) return address<const real>();
        *number = static_cast<real>(PyFloat_AsDouble(values_[next_++]));
        *stride = 0;
        return number;
    }

    double number() {
        if (!ok_) return 0;
        const double value = PyFloat_AsDouble(values_[next_++]);
        ok_ = value != -1 || PyErr_Occurred() == nullptr;
        return value;
    }

    // low < value <= high.
    double number_between(const char* name, double low, double high) {
        const double value = number();
        if (ok_ && !(value > low && value <= high)) {
            PyErr_Format(PyExc_ValueError, "%s: %s must be above %d and at most %d", function_, name, int(low), int(high));
            ok_ = false;
        }
        return value;
    }

    int64_t integer(const char* name, int64_t low, int64_t high) {
        if (!ok_) return 0;
        const long long value = PyLong_AsLongLong(values_[next_++]);
        if (value == -1 && PyErr_Occurred() != nullptr) {
            ok_ = false;
        } else if (value < low || value > high) {
            PyErr_Format(PyExc_ValueError, "%s: %s must be from %lld to %lld, got %lld", function_, name,
                         static_cast<long long>(low), static_cast<long long>(high), value);
            ok_ = false;
        }
        return ok_ ? value : 0;
    }

    int threads() { return static_cast<int>(integer("threads", 1, INT_MAX)); }

    // rows × n elements of `size` bytes must be addressable.
    void check_extent(int64_t rows, int64_t n, int64_t size) {
        int64_t bytes;
        if (ok_ && (__builtin_mul_overflow(rows, n, &bytes) || __builtin_mul_overflow(bytes, size, &bytes))) {
            PyErr_Format(PyExc_OverflowError, "%s: rows * n overflows: %lld * %lld", function_,
                         static_cast<long long>(rows), static_cast<long long>(n));
            ok_ = false;
        }
    }

    // An empty tensor has the address 0; any other must not.
    void check_address(const char* name, const void* address, bool needed) {
        if (ok_ && needed && address == nullptr) {
            PyErr_Format(PyExc_ValueError, "%s: %s must not be a null address", function_, name);
            ok_ = false;
        }
    }

private:
    const char* function_;
    PyObject* const* values_;
    Py_ssize_t next_ = 0;
    bool ok_ = true;
};

// Runs a kernel while other Python threads run. One that needs memory returns whether it got it.
template <typename Kernel>
PyObject* without_gil(const Kernel& kernel) {
    bool enough_memory = true;
    Py_BEGIN_ALLOW_THREADS
    if constexpr (std::is_void_v<decltype(kernel())>) {
        kernel();
    } else {
        enough_memory = kernel();
    }
    Py_END_ALLOW_THREADS
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

}  // namespace
