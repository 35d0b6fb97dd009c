// The solvers, the training steps of small networks and the splits of trees, as a Python module. Arrays are passed by
// the buffer protocol and checked for type and size; the GIL is released while problems are solved, several at a time.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000  // one binary for Python 3.11 and all that follow
#include <Python.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <stdexcept>

#include "centres.hpp"
#include "complete.hpp"
#include "general.hpp"
#include "graph.hpp"
#include "splits.hpp"
#include "steps.hpp"
#include "wasserstein.hpp"

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
    // An int32 may have the type code of a long if that has four bytes, an int64 if it has eight.
    const bool known = format[0] == CODE || ((CODE == 'i' || CODE == 'q') && format[0] == 'l');
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
                               : std::is_same<Number, int64_t>::value ? 'q'
                                                                      : 'b';
  const char* name_;
  Py_buffer view_;
};

// The calling thread checks the interpreter for signals (Ctrl-C); the others check the calling thread.
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

// Solve problems 0 … count−1; `make()` returns a worker with its own memory for each thread, which is called with the
// number of a problem and a watch.
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
    // No more threads are available: the existing ones do the work.
  }
  SignalWatch watch(stop, released);
  work(watch);
  // The other threads may still be busy; handle Ctrl-C meanwhile.
  for (auto& other : others)
    while (other.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) watch.interrupted();
  PyEval_RestoreThread(released);
  if (stop.failure) std::rethrow_exception(stop.failure);
  if (PyErr_Occurred()) throw PythonError{};
}

// Calls a function of the module; C++ exceptions become Python exceptions.
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

// Returns n for costs (n, n).
int side_of(const Array<double>& cost) {
  const int n = sizes(std::lround(std::sqrt(static_cast<double>(cost.size()))));
  cost.holds(static_cast<Py_ssize_t>(n) * n);
  return n;
}

// Reports on a problem: its status, the number of pivots, and whether it was a cold start.
void tell(int* report, Status status, const Effort& effort) {
  report[0] = static_cast<int>(status);
  report[1] = static_cast<int>(std::min<int64_t>(effort.pivots, std::numeric_limits<int>::max()));
  report[2] = effort.cold;
}

// The weights of one problem, divided by their sums.
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

// Shared by the solvers for metrics: weights and trees in, values and potentials out.
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

  // `solver` has memory for one problem at a time; `verify` makes the final check of the potentials.
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
      // Nothing moves. Of all optimal potentials, zero favours no sample.
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
        // Potentials are determined up to a constant: choose the one that gives both distributions half the value.
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
            zero += 0 * forth + 0 * back;  // NaN if one is not finite
          }
    for (int i = 0; i < n; i++) diagonal = std::max(diagonal, std::fabs(cost.row(i, n)[i]));
    return Py_BuildValue("Ndddd", PyBool_FromLong(zero == 0), largest, least, asymmetry, diagonal);
  });
}

// Training steps.

// Whether an array is in single precision; otherwise it must be in double.
bool is_single(PyObject* object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) throw PythonError{};
  const bool single = view.format && !std::strcmp(view.format, "f");
  PyBuffer_Release(&view);
  return single;
}

void check(bool holds, const char* complaint) {
  if (!holds) throw std::invalid_argument(complaint);
}

// Widths (L + 1,) of layers, and the activations (L − 1,) between them.
Architecture architecture_of(PyObject* widths_object, PyObject* activations_object) {
  const Array<int> widths(widths_object, "widths"), activations(activations_object, "activations");
  check(widths.size() >= 2, "a network has at least two widths");
  activations.holds(widths.size() - 2);
  Architecture architecture;
  for (Py_ssize_t l = 0; l < widths.size(); l++) {
    check(widths.data()[l] >= 1 && widths.data()[l] <= (1 << 24), "a width is not positive, or too large");
    architecture.widths.push_back(widths.data()[l]);
  }
  for (Py_ssize_t l = 0; l < activations.size(); l++) {
    check(activations.data()[l] >= 0 && activations.data()[l] <= static_cast<int>(Activation::SIGMOID), "an activation that is not known");
    architecture.activations.push_back(static_cast<Activation>(activations.data()[l]));
  }
  return architecture;
}

// Returns R for parameters (R, P).
template <class Real>
int64_t models_of(const Array<Real>& parameters, const Architecture& architecture) {
  const int64_t P = architecture.parameters(), R = parameters.size() / P;
  check(R >= 1 && R * P == parameters.size(), "the parameters are not those of the architecture");
  return R;
}

// Returns the width of the rows of an array with n rows; 0 if it is empty.
template <class Real>
int64_t width_of(const Array<Real>& array, int64_t n, const char* complaint) {
  check(n >= 1 && array.size() % n == 0, complaint);
  return array.size() / n;
}

// Calls work without the GIL.
template <class Work>
void unlocked(Work work) {
  PyThreadState* released = PyEval_SaveThread();
  try {
    work();
  } catch (...) {
    PyEval_RestoreThread(released);
    throw;
  }
  PyEval_RestoreThread(released);
}

// n weights divided by their sum, or equal ones.
void shares_of(const double* weight, const int64_t* index, int64_t n, double* shares) {
  if (!weight) {
    std::fill(shares, shares + n, 1.0 / static_cast<double>(n));
    return;
  }
  double sum = 0, largest = 0;
  for (int64_t i = 0; i < n; i++) largest = std::max(largest, shares[i] = weight[index ? index[i] : i]);
  // Scale first, so that the sum of very large weights does not overflow.
  for (int64_t i = 0; i < n; i++) sum += shares[i] /= largest;
  for (int64_t i = 0; i < n; i++) shares[i] /= sum;
}

template <class Real>
void gather(const Real* rows, int64_t width, const int64_t* index, int64_t n, Real* batch) {
  for (int64_t i = 0; i < n; i++) std::copy_n(rows + index[i] * width, width, batch + i * width);
}

struct StepArguments {
  PyObject *widths, *activations, *parameters, *mean, *square, *inputs, *features, *weight, *labels, *index, *ends, *rates,
      *values, *entropy, *counts;
  const char* objective;
  double beta1, beta2, clip, smoothing;
  long long steps;
};

template <class Real>
void take_steps(const StepArguments& given) {
  const Architecture architecture = architecture_of(given.widths, given.activations);
  const Array<Real> parameters(given.parameters, "parameters", true), mean(given.mean, "mean", true),
      square(given.square, "square", true), inputs(given.inputs, "inputs"), features(given.features, "features");
  const Array<double> weight(given.weight, "weight"), rates(given.rates, "rates"), values(given.values, "values", true),
      entropy(given.entropy, "entropy", true);
  const Array<int64_t> labels(given.labels, "labels"), index(given.index, "index"), ends(given.ends, "ends"),
      counts(given.counts, "counts", true);
  const int64_t R = models_of(parameters, architecture), d = architecture.inputs(), K = architecture.clusters();
  const int64_t n = inputs.size() / d, S = ends.size();
  mean.holds(parameters.size()), square.holds(parameters.size()), inputs.holds(n * d), rates.holds(S);
  values.holds(S * R), entropy.holds(S * R), counts.holds(S * R * K);
  const Objective objective = objective_of(given.objective);
  Criterion<Real> criterion(objective, given.clip, given.smoothing, R, K);
  const int64_t r = criterion.needs_features() ? width_of(features, n, "the features are not those of the inputs") : 0;
  check(!criterion.needs_features() || r >= 1, "the objective needs features");
  const int64_t l = objective == Objective::LABELS ? width_of(labels, n, "the labels are not those of the inputs") : 0;
  check(objective != Objective::LABELS || l == 1 || l == R, "there are labels for all models, or for each");
  if (weight.size()) weight.holds(n);
  check(given.steps >= 0 && given.steps < (1LL << 53), "the steps are negative, or too many");
  int64_t largest = 0;
  for (int64_t s = 0, first = 0; s < S; first = ends.data()[s], s++) {
    check(first < ends.data()[s] && ends.data()[s] <= index.size(), "a batch is empty, or ends behind the last sample");
    largest = std::max(largest, ends.data()[s] - first);
  }
  for (Py_ssize_t i = 0; i < index.size(); i++)
    check(index.data()[i] >= 0 && index.data()[i] < n, "a sample that is not there");
  if (objective == Objective::LABELS)
    for (int64_t i = 0; i < n * l; i++) check(labels.data()[i] >= 0 && labels.data()[i] < K, "a label that is not there");
  unlocked([&] {
    Networks<Real> networks(architecture, R, parameters.data());
    Adam<Real> adam{parameters.data(), mean.data(), square.data(), parameters.size(), given.steps, given.beta1,
                    given.beta2};
    Buffer<Real> batch, embedding, gradients;
    std::vector<double> shares(largest);
    std::fill(counts.data(), counts.data() + S * R * K, int64_t{0});
    std::vector<int64_t> targets(largest * l);
    for (int64_t s = 0, first = 0; s < S; first = ends.data()[s], s++) {
      const int64_t size = ends.data()[s] - first, *own = index.data() + first;
      gather(inputs.data(), d, own, size, batch.sized(size * d));
      if (r) gather(features.data(), r, own, size, embedding.sized(size * r));
      if (l) gather(labels.data(), l, own, size, targets.data());
      shares_of(weight.size() ? weight.data() : nullptr, own, size, shares.data());
      Real* logits = networks.forward(size, batch.data(), d);
      criterion.evaluate(size, logits, shares.data(), r ? embedding.data() : nullptr, r, r, targets.data(), l,
                         values.row(s, R), entropy.row(s, R), counts.row(s, R * K));
      networks.backward(size, batch.data(), d, logits, gradients.sized(parameters.size()));
      adam.ascend(gradients.data(), rates.data()[s]);
    }
  });
}

const char STEPS_DOC[] =
    "train_steps(widths, activations, parameters, mean, square, steps, beta1, beta2, objective, clip, smoothing,\n"
    "            inputs, features, weight, labels, index, ends, rates, values, entropy, counts)\n\n"
    "Steps of Adam on R dense networks at once, so that an objective rises. Batches are the samples index[:ends[0]],\n"
    "index[ends[0]:ends[1]], … of inputs (n, d), features (n, r), weight (n,) and labels (n,) or (n, R): all but the\n"
    "inputs may be empty. Written are objectives and sums of entropies (S, R), and how many prefer each cluster (S, R, K).";

PyObject* train_steps(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    StepArguments given;
    if (!PyArg_ParseTuple(arguments, "OOOOOLddsddOOOOOOOOOO", &given.widths, &given.activations, &given.parameters,
                          &given.mean, &given.square, &given.steps, &given.beta1, &given.beta2, &given.objective,
                          &given.clip, &given.smoothing, &given.inputs, &given.features, &given.weight, &given.labels,
                          &given.index, &given.ends, &given.rates, &given.values, &given.entropy, &given.counts))
      return nullptr;
    is_single(given.parameters) ? take_steps<float>(given) : take_steps<double>(given);
    Py_RETURN_NONE;
  });
}

// (R, n, K) to (n, R·K), or back.
template <class Real>
void turn(const Real* from, Real* to, int64_t R, int64_t n, int64_t K, bool back) {
  for (int64_t m = 0; m < R; m++)
    for (int64_t i = 0; i < n; i++) {
      const int64_t one = (m * n + i) * K, other = (i * R + m) * K;
      std::copy_n(from + (back ? other : one), K, to + (back ? one : other));
    }
}

const char FORWARD_DOC[] =
    "forward(widths, activations, parameters, inputs, logits)\n\n"
    "Writes the logits (R, n, K) of inputs (n, d) by R dense networks.";

template <class Real>
void write_logits(PyObject* const* o) {
  const Architecture architecture = architecture_of(o[0], o[1]);
  const Array<Real> parameters(o[2], "parameters"), inputs(o[3], "inputs"), logits(o[4], "logits", true);
  const int64_t R = models_of(parameters, architecture), d = architecture.inputs(), K = architecture.clusters();
  const int64_t n = inputs.size() / d;
  inputs.holds(n * d), logits.holds(R * n * K);
  unlocked([&] {
    Networks<Real> networks(architecture, R, parameters.data());
    turn(networks.forward(n, inputs.data(), d), logits.data(), R, n, K, true);
  });
}

PyObject* forward(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* o[5];
    if (!PyArg_ParseTuple(arguments, "OOOOO", &o[0], &o[1], &o[2], &o[3], &o[4])) return nullptr;
    is_single(o[2]) ? write_logits<float>(o) : write_logits<double>(o);
    Py_RETURN_NONE;
  });
}

const char ASCEND_DOC[] =
    "ascend(widths, activations, parameters, mean, square, steps, beta1, beta2, inputs, gradient, rate)\n\n"
    "One step of Adam on R dense networks along the gradient (R, n, K) by the logits of inputs (n, d).";

template <class Real>
void take_step(PyObject* const* o, long long steps, double beta1, double beta2, double rate) {
  const Architecture architecture = architecture_of(o[0], o[1]);
  const Array<Real> parameters(o[2], "parameters", true), mean(o[3], "mean", true), square(o[4], "square", true),
      inputs(o[5], "inputs"), gradient(o[6], "gradient");
  const int64_t R = models_of(parameters, architecture), d = architecture.inputs(), K = architecture.clusters();
  const int64_t n = inputs.size() / d;
  inputs.holds(n * d), gradient.holds(R * n * K), mean.holds(parameters.size()), square.holds(parameters.size());
  check(steps >= 0 && steps < (1LL << 53), "the steps are negative, or too many");
  unlocked([&] {
    Networks<Real> networks(architecture, R, parameters.data());
    Buffer<Real> rows, gradients, readable;
    // Copies are allocated with room to read beyond their end.
    std::copy_n(inputs.data(), n * d, readable.sized(n * d));
    networks.forward(n, readable.data(), d);
    turn(gradient.data(), rows.sized(n * R * K), R, n, K, false);
    networks.backward(n, readable.data(), d, rows.data(), gradients.sized(parameters.size()));
    Adam<Real>{parameters.data(), mean.data(), square.data(), parameters.size(), steps, beta1, beta2}.ascend(
        gradients.data(), rate);
  });
}

PyObject* ascend(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* o[7];
    long long steps;
    double beta1, beta2, rate;
    if (!PyArg_ParseTuple(arguments, "OOOOOLddOOd", &o[0], &o[1], &o[2], &o[3], &o[4], &steps, &beta1, &beta2, &o[5],
                          &o[6], &rate))
      return nullptr;
    is_single(o[2]) ? take_step<float>(o, steps, beta1, beta2, rate) : take_step<double>(o, steps, beta1, beta2, rate);
    Py_RETURN_NONE;
  });
}

const char GRADIENT_DOC[] =
    "gemini_gradient(objective, clip, clusters, logits, features, weight, values, gradient)\n\n"
    "Writes the objectives (R,) at logits (R, n, K), and their gradient; features (n, r) and weight (n,) may be empty.";

template <class Real>
void write_gradient(const char* name, double clip, int K, PyObject* const* o) {
  const Array<Real> logits(o[0], "logits"), features(o[1], "features"), gradient(o[4], "gradient", true);
  const Array<double> weight(o[2], "weight"), values(o[3], "values", true);
  const int64_t R = values.size();
  check(K >= 1 && R >= 1 && logits.size() % (R * K) == 0, "the logits are not those of the models");
  const int64_t n = logits.size() / (R * K);
  check(n >= 1, "there are no samples");
  gradient.holds(logits.size());
  if (weight.size()) weight.holds(n);
  const Objective objective = objective_of(name);
  check(objective != Objective::LABELS, "an objective without labels");
  Criterion<Real> criterion(objective, clip, 0, R, K);
  const int64_t r = criterion.needs_features() ? width_of(features, n, "the features are not those of the samples") : 0;
  check(!criterion.needs_features() || r >= 1, "the objective needs features");
  unlocked([&] {
    Buffer<Real> rows, embedding;
    std::vector<double> shares(n);
    turn(logits.data(), rows.sized(n * R * K), R, n, K, false);
    std::copy_n(features.data(), n * r, embedding.sized(n * r));
    shares_of(weight.size() ? weight.data() : nullptr, nullptr, n, shares.data());
    criterion.evaluate(n, rows.data(), shares.data(), embedding.data(), r, r, nullptr, 0, values.data(), nullptr, nullptr);
    turn(rows.data(), gradient.data(), R, n, K, true);
  });
}

PyObject* gemini_gradient(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    const char* name;
    double clip;
    int clusters;
    PyObject* o[5];
    if (!PyArg_ParseTuple(arguments, "sdiOOOOO", &name, &clip, &clusters, &o[0], &o[1], &o[2], &o[3], &o[4]))
      return nullptr;
    is_single(o[0]) ? write_gradient<float>(name, clip, clusters, o) : write_gradient<double>(name, clip, clusters, o);
    Py_RETURN_NONE;
  });
}

// Splits of trees.

// The splits of a leaf: orders (c', n) of samples, the range of its samples in them, first and one past the last, the
// columns (c,) that may be split, and the splits (t,).
struct Leaf {
  Array<int> order, columns;
  Array<int64_t> last;
  Splits splits;

  Leaf(PyObject* const* o, int64_t n, int64_t start, int64_t stop)
      : order(o[0], "order"), columns(o[1], "columns"), last(o[2], "last") {
    check(n >= 1 && order.size() % n == 0, "the orders are not those of the samples");
    check(0 <= start && start < stop && stop <= n, "the leaf is not within the samples");
    splits = {order.data(), columns.data(), n, start, stop - start, columns.size(), last.data(), last.size()};
    for (int64_t j = 0; j < splits.c; j++) {
      check(columns.data()[j] >= 0 && columns.data()[j] < order.size() / n, "a column that is not there");
      const int* samples = order.row(columns.data()[j], n);
      bool inside = true;
      for (int64_t i = start; i < stop; i++) inside &= samples[i] >= 0 && samples[i] < n;
      check(inside, "a sample that is not there");
    }
    for (int64_t k = 0; k < splits.t; k++)
      check(last.data()[k] > (k ? last.data()[k - 1] : -1) && last.data()[k] < splits.c * splits.m,
            "the splits do not rise, or are not within the leaf");
  }
};

const char SQUARES_DOC[] =
    "square_sides(order, columns, last, start, stop, features, weight, total, left, squares)\n\n"
    "Writes weights (t,) of the left sides of splits, and ‖s‖² (2, t) of both sides, s being sums of features (n, r).";

PyObject* write_squares(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *o[3], *features_object, *weight_object, *total_object, *left_object, *squares_object;
    long long start, stop;
    if (!PyArg_ParseTuple(arguments, "OOOLLOOOOO", &o[0], &o[1], &o[2], &start, &stop, &features_object, &weight_object,
                          &total_object, &left_object, &squares_object))
      return nullptr;
    const Array<double> features(features_object, "features"), weight(weight_object, "weight"),
        total(total_object, "total"), left(left_object, "left", true), squares(squares_object, "squares", true);
    const Leaf leaf(o, weight.size(), start, stop);
    const int r = sizes(total.size());
    features.holds(leaf.splits.n * r), left.holds(leaf.splits.t), squares.holds(2 * leaf.splits.t);
    unlocked([&] {
      square_sides(leaf.splits, features.data(), r, weight.data(), total.data(), left.data(), squares.data());
    });
    Py_RETURN_NONE;
  });
}

const char SPLITS_DOC[] =
    "scan_splits(order, columns, last, start, stop, left, squares, dots, sizes, norms, totals, own, weight, emptied,\n"
    "            targets, tolerance, pairs, gains, splits)\n\n"
    "Writes what the best splits of a leaf of the cluster `own` gain, (K + 4,): those that send a side to each of the\n"
    "targets (C,), to a new cluster, both sides to two new ones, or to two of the targets; and which they are.";

PyObject* write_moves(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *o[3], *n[6], *targets_object, *gains_object, *splits_object;
    long long start, stop;
    int own, pairs;
    double weight, emptied, tolerance;
    if (!PyArg_ParseTuple(arguments, "OOOLLOOOOOOiddOdpOO", &o[0], &o[1], &o[2], &start, &stop, &n[0], &n[1], &n[2],
                          &n[3], &n[4], &n[5], &own, &weight, &emptied, &targets_object, &tolerance, &pairs,
                          &gains_object, &splits_object))
      return nullptr;
    const Array<double> left(n[0], "left"), squares(n[1], "squares"), dots(n[2], "dots"), weights(n[3], "sizes"),
        norms(n[4], "norms"), totals(n[5], "totals"), gains(gains_object, "gains", true);
    const Array<int> targets(targets_object, "targets");
    const Array<int64_t> found(splits_object, "splits", true);
    const int K = sizes(weights.size()), C = sizes(targets.size());
    check(K >= 1 && dots.size() % K == 0, "the products are not those of the clusters");
    const Leaf leaf(o, dots.size() / K, start, stop);
    left.holds(leaf.splits.t), squares.holds(2 * leaf.splits.t), norms.holds(K), totals.holds(K);
    gains.holds(K + 4), found.holds(K + 4);
    check(own >= 0 && own < K, "a cluster that is not there");
    for (int j = 0; j < C; j++) check(targets.data()[j] >= 0 && targets.data()[j] < K, "a cluster that is not there");
    unlocked([&] {
      scan_splits(leaf.splits, left.data(), squares.data(), dots.data(), K, weights.data(), norms.data(), totals.data(),
                  own, weight, emptied, targets.data(), C, tolerance, pairs != 0, gains.data(), found.data());
    });
    Py_RETURN_NONE;
  });
}

const char CENTRES_DOC[] =
    "iterate_centres(samples, squares, weight, centres, labels, tolerance, iterations)\n\n"
    "Lloyd's iterations from centres (K, r), which are written, as are the labels (n,) of samples (n, r) of these\n"
    "squared lengths (n,) and weights (n,). Returns the inertia.";

template <class Real>
double write_centres(PyObject* const* o, double tolerance, long long iterations) {
  const Array<Real> samples(o[0], "samples"), centres(o[3], "centres", true);
  const Array<double> squares(o[1], "squares"), weight(o[2], "weight");
  const Array<int64_t> labels(o[4], "labels", true);
  const int64_t n = labels.size();
  check(n >= 1 && samples.size() >= n && samples.size() % n == 0, "the samples are not those of the labels");
  const int64_t r = samples.size() / n, K = centres.size() / r;
  check(K >= 1 && iterations >= 0, "there are no centres, or no iterations");
  samples.holds(n * r), centres.holds(K * r), squares.holds(n), weight.holds(n);
  double inertia = 0;
  unlocked([&] {
    inertia = iterate_centres<Real>(n, r, K, samples.data(), squares.data(), weight.data(), centres.data(),
                                    labels.data(), tolerance, iterations);
  });
  return inertia;
}

PyObject* move_centres(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* o[5];
    double tolerance;
    long long iterations;
    if (!PyArg_ParseTuple(arguments, "OOOOOdL", &o[0], &o[1], &o[2], &o[3], &o[4], &tolerance, &iterations))
      return nullptr;
    return PyFloat_FromDouble(is_single(o[0]) ? write_centres<float>(o, tolerance, iterations)
                                              : write_centres<double>(o, tolerance, iterations));
  });
}

const char SEEDS_DOC[] =
    "seed_centres(samples, squares, weight, draws, chosen)\n\n"
    "Greedy k-means++: writes which of the samples (n, r), of these squared lengths (n,) and weights (n,), are the K\n"
    "centres (chosen, of which the first is given), by draws (K − 1, trials) from 0 to 1.";

template <class Real>
void write_seeds(PyObject* const* o) {
  const Array<Real> samples(o[0], "samples");
  const Array<double> squares(o[1], "squares"), weight(o[2], "weight"), draws(o[3], "draws");
  const Array<int64_t> chosen(o[4], "chosen", true);
  const int64_t n = squares.size(), K = chosen.size();
  check(n >= 1 && samples.size() >= n && samples.size() % n == 0, "the samples are not those of the squares");
  check(K >= 1 && chosen.data()[0] >= 0 && chosen.data()[0] < n, "the first centre is not one of the samples");
  const int64_t trials = K > 1 ? draws.size() / (K - 1) : 1;
  check(trials >= 1, "there are no draws");
  draws.holds((K - 1) * trials), weight.holds(n);
  unlocked([&] {
    seed_centres<Real>(n, samples.size() / n, K, trials, samples.data(), squares.data(), weight.data(), draws.data(),
                       chosen.data());
  });
}

PyObject* choose_seeds(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* o[5];
    if (!PyArg_ParseTuple(arguments, "OOOOO", &o[0], &o[1], &o[2], &o[3], &o[4])) return nullptr;
    is_single(o[0]) ? write_seeds<float>(o) : write_seeds<double>(o);
    Py_RETURN_NONE;
  });
}

const char PREDICTED_DOC[] =
    "predict_clusters(K, logits, clusters, shares)\n\n"
    "Writes p(y|x) with a row for each cluster, (R, K, n), and p(y) (R, K), from logits (R, n, K).";

PyObject* predict_rows(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* o[3];
    int K;
    if (!PyArg_ParseTuple(arguments, "iOOO", &K, &o[0], &o[1], &o[2])) return nullptr;
    const Array<double> logits(o[0], "logits"), clusters(o[1], "clusters", true), shares(o[2], "shares", true);
    check(K >= 1 && shares.size() >= K && shares.size() % K == 0, "the shares are not those of clusters");
    const int64_t R = shares.size() / K, n = logits.size() / (R * K);
    logits.holds(R * n * K), clusters.holds(R * n * K);
    unlocked([&] {
      for (int64_t m = 0; m < R; m++)
        predict_clusters(n, K, logits.data() + m * n * K, clusters.data() + m * n * K, shares.data() + m * K);
    });
    Py_RETURN_NONE;
  });
}

const char TRANSPORT_DOC[] =
    "transport_gradient(one_vs_one, clusters, shares, costs, f, g, values, gradient)\n\n"
    "Writes Wasserstein objectives (R,) and their gradient (R, n, K) by logits, from p(y|x) (R, K, n), p(y) (R, K), and\n"
    "the costs and potentials of the transport between each cluster and all samples, or between any two clusters.";

PyObject* write_transport(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject* o[7];
    int one_vs_one;
    if (!PyArg_ParseTuple(arguments, "pOOOOOOO", &one_vs_one, &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6]))
      return nullptr;
    const Array<double> clusters(o[0], "clusters"), shares(o[1], "shares"), costs(o[2], "costs"), f(o[3], "f"),
        g(o[4], "g"), values(o[5], "values", true), gradient(o[6], "gradient", true);
    const int64_t R = values.size();
    check(R >= 1 && shares.size() >= R && shares.size() % R == 0, "the shares are not those of clusters");
    const int64_t K = shares.size() / R, n = clusters.size() / (R * K), m = one_vs_one ? K * (K - 1) / 2 : K;
    clusters.holds(R * K * n), costs.holds(R * m), f.holds(R * m * n), g.holds(R * m * n), gradient.holds(R * K * n);
    unlocked([&] {
      for (int64_t i = 0; i < R; i++)
        values.data()[i] = transport_gradient(one_vs_one, n, K, clusters.data() + i * K * n, shares.data() + i * K,
                                              costs.data() + i * m, f.data() + i * m * n, g.data() + i * m * n,
                                              gradient.data() + i * K * n);
    });
    Py_RETURN_NONE;
  });
}

PyMethodDef METHODS[] = {{"solve_metric", solve_metric, METH_VARARGS, METRIC_DOC},
                         {"solve_graph", solve_graph, METH_VARARGS, GRAPH_DOC},
                         {"solve_general", solve_general, METH_VARARGS, GENERAL_DOC},
                         {"describe", describe, METH_O, DESCRIBE_DOC},
                         {"triangles_hold", triangles, METH_VARARGS, TRIANGLES_DOC},
                         {"train_steps", train_steps, METH_VARARGS, STEPS_DOC},
                         {"forward", forward, METH_VARARGS, FORWARD_DOC},
                         {"ascend", ascend, METH_VARARGS, ASCEND_DOC},
                         {"gemini_gradient", gemini_gradient, METH_VARARGS, GRADIENT_DOC},
                         {"square_sides", write_squares, METH_VARARGS, SQUARES_DOC},
                         {"scan_splits", write_moves, METH_VARARGS, SPLITS_DOC},
                         {"predict_clusters", predict_rows, METH_VARARGS, PREDICTED_DOC},
                         {"transport_gradient", write_transport, METH_VARARGS, TRANSPORT_DOC},
                         {"seed_centres", choose_seeds, METH_VARARGS, SEEDS_DOC},
                         {"iterate_centres", move_centres, METH_VARARGS, CENTRES_DOC},
                         {nullptr, nullptr, 0, nullptr}};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_compiled", "Exact optimal transport, many problems at a time; training steps; splits.", 0, METHODS,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__compiled() { return PyModule_Create(&MODULE); }
