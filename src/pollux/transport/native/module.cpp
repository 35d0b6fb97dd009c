// The solvers as a Python module. Arrays come through the buffer protocol and are checked for type and size; the lock of
// the interpreter is released while problems are solved, several at a time.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000  // one binary for Python 3.11 and all that follow
#include <Python.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <stdexcept>

#include "complete.hpp"
#include "general.hpp"
#include "graph.hpp"

namespace {

using namespace pollux;

struct PythonError {};  // an exception is set in the interpreter

// A contiguous array of numbers that the caller owns.
template <class Number>
class Array {
 public:
  Array(PyObject* object, const char* name, bool writable = false) : name_(name) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &view_, flags) != 0) throw PythonError{};
    const char* format = view_.format ? view_.format : "B";
    // Where a long has four bytes, that is what an int32 is called.
    const bool known = format[0] == CODE || (CODE == 'i' && format[0] == 'l');
    if (!known || format[1] || view_.itemsize != sizeof(Number)) {
      PyErr_Format(PyExc_TypeError, "%s holds numbers of type '%s', not '%c'", name, format, CODE);
      PyBuffer_Release(&view_);
      throw PythonError{};
    }
  }
  ~Array() { PyBuffer_Release(&view_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  Number* data() const { return static_cast<Number*>(view_.buf); }
  Py_ssize_t size() const { return view_.len / static_cast<Py_ssize_t>(sizeof(Number)); }
  Number* row(Py_ssize_t i, Py_ssize_t width) const { return data() + i * width; }
  const Array& holds(Py_ssize_t count) const {
    if (size() == count) return *this;
    PyErr_Format(PyExc_ValueError, "%s has %zd numbers, not %zd", name_, size(), count);
    throw PythonError{};
  }

 private:
  static constexpr char CODE = std::is_same<Number, double>::value  ? 'd'
                               : std::is_same<Number, float>::value ? 'f'
                               : std::is_same<Number, int>::value   ? 'i'
                                                                    : 'b';
  const char* name_;
  Py_buffer view_;
};

// The calling thread asks the interpreter for signals (Ctrl-C); the others ask the calling thread.
struct Stop {
  std::atomic<bool> asked{false}, failed{false};
  std::exception_ptr failure;
};

class Listener : public Watch {
 public:
  explicit Listener(Stop& stop) : stop_(stop) {}
  bool interrupted() override { return stop_.asked.load(std::memory_order_relaxed); }

 private:
  Stop& stop_;
};

class SignalWatch : public Watch {
 public:
  SignalWatch(Stop& stop, PyThreadState*& released) : stop_(stop), released_(released) {}
  bool interrupted() override {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ > std::chrono::milliseconds(50)) {
      last_ = now;
      PyEval_RestoreThread(released_);
      if (PyErr_CheckSignals() != 0) stop_.asked = true;
      released_ = PyEval_SaveThread();
    }
    return stop_.asked.load(std::memory_order_relaxed);
  }

 private:
  Stop& stop_;
  PyThreadState*& released_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Solve problems 0 … count−1; `make()` gives each thread a worker with memory of its own, to be called with the number
// of a problem and a watch.
template <class Make>
void in_parallel(int count, int threads, Make make) {
  Stop stop;
  std::atomic<int> following{0};
  auto work = [&](Watch& watch) {
    try {
      auto worker = make();
      for (int problem; !stop.asked && (problem = following++) < count;)
        if (worker(problem, watch) == Status::INTERRUPTED) return;
    } catch (...) {
      if (!stop.failed.exchange(true)) stop.failure = std::current_exception();
      stop.asked = true;
    }
  };
  PyThreadState* released = PyEval_SaveThread();
  std::vector<std::future<void>> others;
  try {
    for (int t = 1; t < std::min(threads, count); t++)
      others.push_back(std::async(std::launch::async, [&] {
        Listener watch(stop);
        work(watch);
      }));
  } catch (...) {
    // No more threads to be had: those there are do the work.
  }
  SignalWatch watch(stop, released);
  work(watch);
  // The others may have long problems left; Ctrl-C is noticed meanwhile.
  for (auto& other : others)
    while (other.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) watch.interrupted();
  PyEval_RestoreThread(released);
  if (stop.failure) std::rethrow_exception(stop.failure);
  if (PyErr_Occurred()) throw PythonError{};
}

// Runs a function of the module; what is thrown becomes a Python exception.
template <class Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

int sizes(Py_ssize_t count) {
  if (count < 0 || count > (1 << 30)) {
    PyErr_Format(PyExc_ValueError, "%zd is too many", count);
    throw PythonError{};
  }
  return static_cast<int>(count);
}

// The n of costs (n, n).
int side_of(const Array<double>& cost) {
  const int n = sizes(std::lround(std::sqrt(static_cast<double>(cost.size()))));
  cost.holds(static_cast<Py_ssize_t>(n) * n);
  return n;
}

// What is reported of a problem: its status, the number of pivots, and whether it started from nothing.
void tell(int* report, Status status, const Effort& effort) {
  report[0] = static_cast<int>(status);
  report[1] = static_cast<int>(std::min<int64_t>(effort.pivots, std::numeric_limits<int>::max()));
  report[2] = effort.cold;
}

// The weights of one problem, as shares.
struct Weights {
  std::vector<double> p, q, supply;
  explicit Weights(int n) : p(n), q(n), supply(n) {}

  Status take(const double* from, const double* to) {
    const int n = static_cast<int>(p.size());
    const Status first = shares(from, n, p.data());
    return first == Status::OPTIMAL ? shares(to, n, q.data()) : first;
  }
  double whole_supplies() {
    return pollux::whole_supplies(p.data(), q.data(), static_cast<int>(p.size()), supply.data());
  }
};

// What the solvers for metrics have in common: weights and trees in, values and potentials out.
struct Problems {
  Array<double> p, q;
  Array<int> parent;
  Array<int8_t> up;
  Array<double> values, potentials, gaps;
  Array<int> report;
  int n, count;

  Problems(PyObject* const* o, int nodes)
      : p(o[0], "p"), q(o[1], "q"), parent(o[2], "parent", true), up(o[3], "up", true), values(o[4], "values", true),
        potentials(o[5], "potentials", true), gaps(o[6], "gaps", true), report(o[7], "report", true), n(nodes),
        count(sizes(values.size())) {
    const Py_ssize_t all = static_cast<Py_ssize_t>(count) * n;
    p.holds(all), parent.holds(all), up.holds(all), potentials.holds(all), gaps.holds(count);
    report.holds(3 * static_cast<Py_ssize_t>(count));
    if (q.size() != n) q.holds(all);
  }

  // `solver` has room for one problem at a time; `verify` is its last word on the potentials.
  template <class Solver, class Verify>
  Status solve(int problem, Solver& solver, Weights& weights, Watch& watch, Verify verify) const {
    double &value = values.data()[problem], &gap = gaps.data()[problem], *potential = potentials.row(problem, n);
    int* tree_parent = parent.row(problem, n);
    int8_t* tree_up = up.row(problem, n);
    Effort effort;
    value = gap = 0;
    Status status = weights.take(p.row(problem, n), q.row(q.size() == n ? 0 : problem, n));
    const double unit = status == Status::OPTIMAL ? weights.whole_supplies() : 0;
    if (unit == 0) {
      // Nothing moves. Of all optimal potentials zero prefers no sample.
      std::fill(potential, potential + n, 0.0);
    } else {
      const double* supply = weights.supply.data();
      status = tree_parent[0] < -1 ? Status::GAVE_UP : solver.warm(tree_parent, tree_up, supply, watch, effort);
      if (status == Status::GAVE_UP) status = solver.cold(supply, watch, effort);
      if (status == Status::OPTIMAL) {
        if (effort.pivots) solver.refresh(supply);
        const SpanningTree& tree = solver.tree;
        double cost = 0, middle = 0;
        for (int v = 0; v < n; v++) {
          if (v != tree.root) cost += std::fabs(tree.nodes[v].sent) * tree.nodes[v].length;
          value += tree.potential[v] * (weights.p[v] - weights.q[v]);
          middle += tree.potential[v] * (weights.p[v] + weights.q[v]) / 2;
        }
        value = std::max(value, 0.0), gap = std::max(unit * cost - value, 0.0);
        // Potentials are known up to a constant: the one that gives both distributions half the value.
        for (int v = 0; v < n; v++) potential[v] = tree.potential[v] - middle;
        for (int v = 0; v < n; v++) tree_parent[v] = tree.nodes[v].parent, tree_up[v] = tree.nodes[v].up;
        if (!verify(tree)) status = Status::GAVE_UP;
      }
    }
    tell(report.row(problem, 3), status, effort);
    return status;
  }
};

const char METRIC_DOC[] =
    "solve_metric(p, q, parent, up, values, potentials, gaps, report, cost, single, largest, tolerance, threads)\n\n"
    "Transport p (m, n) to q (m, n) or (n,) at costs (n, n) that are a metric. Where the tolerance is positive they\n"
    "need not be: potentials that break a cost by more are reported.";

PyObject* solve_metric(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *o[8], *cost_object, *single_object;
    double largest, tolerance;
    int threads;
    if (!PyArg_ParseTuple(arguments, "OOOOOOOOOOddi", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7],
                          &cost_object, &single_object, &largest, &tolerance, &threads))
      return nullptr;
    const Array<double> cost(cost_object, "cost");
    const Array<float> single(single_object, "single");
    const int n = side_of(cost);
    single.holds(cost.size());
    const Problems problems(o, n);
    const Distances distances{cost.data(), single.data(), n, largest};
    in_parallel(problems.count, threads, [&] {
      return [&, solver = Complete(distances), weights = Weights(n)](int problem, Watch& watch) mutable {
        return problems.solve(problem, solver, weights, watch, [&](const SpanningTree& tree) {
          return tolerance <= 0 || violation(distances, tree.potential.data()) <= tolerance;
        });
      };
    });
    Py_RETURN_NONE;
  });
}

const char GRAPH_DOC[] =
    "solve_graph(p, q, parent, up, values, potentials, gaps, report, starts, ends, lengths, threads)\n\n"
    "Transport p (m, n) to q (m, n) or (n,) along the edges of a connected, symmetric graph in compressed rows.";

PyObject* solve_graph(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *o[8], *starts_object, *ends_object, *lengths_object;
    int threads;
    if (!PyArg_ParseTuple(arguments, "OOOOOOOOOOOi", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7],
                          &starts_object, &ends_object, &lengths_object, &threads))
      return nullptr;
    const Array<int> starts(starts_object, "starts"), ends(ends_object, "ends");
    const Array<double> lengths(lengths_object, "lengths");
    const int n = sizes(starts.size() - 1);
    ends.holds(lengths.size());
    for (int v = 0; v < n; v++)
      if (starts.data()[v] < 0 || starts.data()[v] > starts.data()[v + 1]) throw std::invalid_argument("starts fall");
    if (starts.data()[n] != ends.size()) throw std::invalid_argument("starts do not end with the edges");
    for (Py_ssize_t e = 0; e < ends.size(); e++)
      if (ends.data()[e] < 0 || ends.data()[e] >= n)
        throw std::invalid_argument("an edge leads out of the graph");
      else if (!(lengths.data()[e] >= 0 && lengths.data()[e] < INFINITE))
        throw std::invalid_argument("an edge has a length that is negative or not finite");
    const Problems problems(o, n);
    const Graph graph(n, starts.data(), ends.data(), lengths.data());
    in_parallel(problems.count, threads, [&] {
      return [&, solver = Sparse(graph), weights = Weights(n)](int problem, Watch& watch) mutable {
        return problems.solve(problem, solver, weights, watch, [](const SpanningTree&) { return true; });
      };
    });
    Py_RETURN_NONE;
  });
}

const char GENERAL_DOC[] =
    "solve_general(p, q, cost, values, potentials_p, potentials_q, gaps, report, threads)\n\n"
    "Transport p (m, n) to q (m, n) or (n,) at any costs (n, n).";

PyObject* solve_general(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* o[8];
    int threads;
    if (!PyArg_ParseTuple(arguments, "OOOOOOOOi", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7],
                          &threads))
      return nullptr;
    const Array<double> p(o[0], "p"), q(o[1], "q"), cost(o[2], "cost");
    const Array<double> values(o[3], "values", true), by_p(o[4], "potentials_p", true),
        by_q(o[5], "potentials_q", true), gaps(o[6], "gaps", true);
    const Array<int> report(o[7], "report", true);
    const int n = side_of(cost);
    const int count = sizes(values.size());
    const Py_ssize_t all = static_cast<Py_ssize_t>(count) * n;
    p.holds(all), by_p.holds(all), by_q.holds(all), gaps.holds(count);
    report.holds(3 * static_cast<Py_ssize_t>(count));
    if (q.size() != n) q.holds(all);
    in_parallel(count, threads, [&] {
      return [&, solver = General(cost.data(), n), weights = Weights(n)](int k, Watch& watch) mutable {
        Effort effort;
        Status status = weights.take(p.row(k, n), q.row(q.size() == n ? 0 : k, n));
        if (status == Status::OPTIMAL)
          status = solver.solve(weights.p.data(), weights.q.data(), by_p.row(k, n), by_q.row(k, n), values.data()[k],
                                gaps.data()[k], watch, effort);
        tell(report.row(k, 3), status, effort);
        return status;
      };
    });
    Py_RETURN_NONE;
  });
}

const char TRIANGLES_DOC[] =
    "triangles_hold(cost, step, tolerance, threads)\n\n"
    "Whether no way over a third point is shorter, by more than the tolerance, than the cost (n, n) between two; for\n"
    "every step-th point as one of the two.";

PyObject* triangles(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* cost_object;
    int step, threads;
    double tolerance;
    if (!PyArg_ParseTuple(arguments, "Oidi", &cost_object, &step, &tolerance, &threads)) return nullptr;
    const Array<double> cost(cost_object, "cost");
    const int n = side_of(cost);
    if (step < 1) throw std::invalid_argument("a step is positive");
    const Distances distances{cost.data(), nullptr, n, 0};
    std::atomic<bool> hold{true};
    // Not (n + step − 1) / step, which a large step would overflow.
    in_parallel(n / step + (n % step != 0), threads, [&] {
      return [&](int k, Watch& watch) {
        if (hold && !triangles_hold(distances, k * step, step > 1, tolerance)) hold = false;
        return watch.interrupted() ? Status::INTERRUPTED : Status::OPTIMAL;
      };
    });
    return PyBool_FromLong(hold);
  });
}

const char DESCRIBE_DOC[] =
    "describe(cost) -> (finite, largest, least, asymmetry, diagonal)\n\n"
    "What there is to know of costs (n, n) at one look: whether all are finite, the largest and the least, and the\n"
    "largest difference between the two directions and cost of staying.";

PyObject* describe(PyObject*, PyObject* cost_object) {
  return guarded([&]() -> PyObject* {
    const Array<double> cost(cost_object, "cost");
    const int n = side_of(cost);
    double largest = 0, least = 0, asymmetry = 0, diagonal = 0, zero = 0;
    // Blocks whose rows and columns both stay in the cache.
    constexpr int BLOCK = 32;
    for (int i0 = 0; i0 < n; i0 += BLOCK)
      for (int j0 = i0; j0 < n; j0 += BLOCK)
        for (int i = i0; i < std::min(i0 + BLOCK, n); i++)
          for (int j = j0; j < std::min(j0 + BLOCK, n); j++) {
            const double forth = cost.row(i, n)[j], back = cost.row(j, n)[i];
            largest = std::max(largest, std::max(forth, back)), least = std::min(least, std::min(forth, back));
            asymmetry = std::max(asymmetry, std::fabs(forth - back));
            zero += 0 * forth + 0 * back;  // NaN where one is not finite
          }
    for (int i = 0; i < n; i++) diagonal = std::max(diagonal, std::fabs(cost.row(i, n)[i]));
    return Py_BuildValue("Ndddd", PyBool_FromLong(zero == 0), largest, least, asymmetry, diagonal);
  });
}

PyMethodDef METHODS[] = {{"solve_metric", solve_metric, METH_VARARGS, METRIC_DOC},
                         {"solve_graph", solve_graph, METH_VARARGS, GRAPH_DOC},
                         {"solve_general", solve_general, METH_VARARGS, GENERAL_DOC},
                         {"describe", describe, METH_O, DESCRIBE_DOC},
                         {"triangles_hold", triangles, METH_VARARGS, TRIANGLES_DOC},
                         {nullptr, nullptr, 0, nullptr}};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_native", "Exact optimal transport, many problems at a time.", 0, METHODS,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&MODULE); }
