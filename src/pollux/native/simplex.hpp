// Shared by all solvers: supplies, stopping, and the dual simplex that restarts from an earlier tree.
#pragma once
#include <algorithm>
#include <cmath>

#include "scan.hpp"
#include "tree.hpp"

namespace pollux {

enum class Status : int { OPTIMAL, GAVE_UP, INTERRUPTED, NEGATIVE_WEIGHT, NO_NUMBER };

// Solvers ask it now and then whether to stop.
class Watch {
 public:
  virtual bool interrupted() = 0;
  virtual ~Watch() = default;
};

constexpr int PIVOTS_UNNOTICED = 256;

// Bound on the accumulated rounding error of a difference of potentials, relative to them.
constexpr double ROUNDING = 1e-14;

// Statistics of a solver, for inspection and for tests.
struct Effort {
  int64_t pivots = 0;
  bool cold = false;
};

// Weights divided by their sum.
inline Status shares(const double* weights, int n, double* share) {
  double total = 0, least = 0, largest = 0;
  for (int i = 0; i < n; i++) {
    total += weights[i];
    least = std::min(least, weights[i]), largest = std::max(largest, weights[i]);
  }
  if (least < 0) return Status::NEGATIVE_WEIGHT;
  // Sums may overflow even if no weight does.
  const double unit = total < INFINITE ? 1 : largest;
  if (unit != 1) total = 0;
  for (int i = 0; unit != 1 && i < n; i++) total += weights[i] / unit;
  if (!(total > 0 && total < INFINITE)) return Status::NO_NUMBER;
  for (int i = 0; i < n; i++) share[i] = weights[i] / unit / total;
  return Status::OPTIMAL;
}

// p − q in whole multiples of a unit, so that their sums are exact: flows have no rounding errors, and zeros are zeros.
//
// The unit is 2⁻⁵¹ of the mass that moves, the precision of a float64. Returns the unit, or 0 if p and q are equal up
// to rounding.
inline double whole_supplies(const double* p, const double* q, int n, double* supply) {
  double moving = 0;
  for (int i = 0; i < n; i++) moving += std::fabs(p[i] - q[i]);
  if (moving <= 4 * std::numeric_limits<double>::epsilon()) return 0;
  const double unit = std::ldexp(1.0, std::ilogb(moving) - 50);
  double excess = 0;
  int largest = 0;
  for (int i = 0; i < n; i++) {
    excess += supply[i] = std::nearbyint((p[i] - q[i]) / unit);
    if (std::fabs(supply[i]) > std::fabs(supply[largest])) largest = i;
  }
  supply[largest] -= excess;
  return unit;
}

// An arc that may enter the tree, between a node of a subtree and one outside it, and its slack: its cost minus the
// difference of potentials.
struct Entering {
  int inside, outside;
  double cost, slack;
};

// Supplies have changed, costs have not: the old tree still has optimal potentials, but some arcs carry negative flow.
// Cut the worst of them, and join the two parts again by the arc that becomes tight first.
//
// `arcs.entering(tree, top, sign)` finds that arc for the subtree of `top`, just listed, which has to send (sign +1) or
// to receive (−1) mass. Gives up if more than the share `most_wrong` of all arcs is infeasible at the start: a cold
// start is then faster.
template <class Arcs>
Status dual_simplex(SpanningTree& tree, Arcs& arcs, double most_wrong, Watch& watch, Effort& effort) {
  const int n = tree.n;
  const int64_t cap = effort.pivots + 20 * static_cast<int64_t>(n) + 100;
  for (bool first = true;; first = false) {
    double worst = 0, gap = 0, value = 0;
    int top = -1, wrong = 0;
    for (int v = 0; v < n; v++) {
      if (v == tree.root) continue;
      const Node& node = tree.nodes[v];
      const double along = node.sent * node.up;
      value += std::fabs(node.sent) * node.length;
      if (along >= 0) continue;
      wrong++;
      gap -= 2 * along * node.length;
      // Steepest edge: a cut that moves the potentials of `size` nodes against the others has length √(size (n − size)).
      const double score = along * along / (node.size * static_cast<double>(n - node.size));
      if (score > worst) worst = score, top = v;
    }
    if (first && wrong > most_wrong * n) return Status::GAVE_UP;
    // Every spanning tree carries the flow over arcs in either direction at the same cost: `value` is the cost of a
    // feasible flow, and `gap` its excess over the dual value.
    if (top < 0 || gap <= std::numeric_limits<double>::epsilon() * value) return Status::OPTIMAL;
    if (effort.pivots >= cap) return Status::GAVE_UP;
    if (++effort.pivots % PIVOTS_UNNOTICED == 0 && watch.interrupted()) return Status::INTERRUPTED;

    const int moved = tree.nodes[top].size;
    const double sign = tree.nodes[top].sent > 0 ? 1 : -1;
    tree.list(top, 0);
    const Entering arc = arcs.entering(tree, top, sign);
    if (arc.inside < 0) return Status::GAVE_UP;
    // Only differences of potentials matter: move the smaller part.
    const double step = sign * std::max(arc.slack, 0.0);
    if (2 * moved <= n) {
      for (int k = 0; k < moved; k++) tree.potential[tree.listed[k]] += step;
    } else {
      for (int v = tree.next[tree.listed[moved - 1]]; v != top; v = tree.next[v]) tree.potential[v] -= step;
    }
    const int meeting = tree.meeting(tree.nodes[top].parent, arc.outside);
    tree.exchange(top, arc.inside, arc.outside, meeting, static_cast<int8_t>(sign), arc.cost);
  }
}

}  // namespace pollux
