// Transport with metric costs: a flow on the complete graph, by the dual simplex from a warm start, else by the primal.
#pragma once
#include "bipartite.hpp"

namespace pollux {

// Distances (n, n): symmetric, zero from a point to itself, satisfying the triangle inequality. `single` holds the same
// numbers in float32.
struct Distances {
  const double* exact;
  const float* single;
  int n;
  double largest;

  const double* row(int i) const { return exact + static_cast<size_t>(i) * n; }
  const float* single_row(int i) const { return single + static_cast<size_t>(i) * n; }
};

// max_ij f_i − f_j − C_ij: the violation of feasibility of potentials.
inline double violation(const Distances& distances, const double* potential) {
  double most = -INFINITE;
  for (int i = 0; i < distances.n; i++)
    most = std::max(most, potential[i] - least_sum(distances.row(i), potential, distances.n));
  return most;
}

// Whether the distances from one point to all others satisfy the triangle inequality.
inline bool triangles_hold(const Distances& distances, int point, bool to_all, double tolerance) {
  const double* row = distances.row(point);
  for (int j = to_all ? 0 : point + 1; j < distances.n; j++)
    if (row[j] > least_sum(row, distances.row(j), distances.n) + tolerance) return false;
  return true;
}

class Complete {
 public:
  SpanningTree tree;

  explicit Complete(const Distances& distances)
      : distances_(distances), key_(distances.n), least_(distances.n), single_key_(distances.n),
        dominated_(distances.n) {
    tree.resize(distances.n);
  }

  // Starts from the tree in `parent` and `up`, of an earlier problem with the same costs.
  Status warm(const int* parent, const int8_t* up, const double* supply, Watch& watch, Effort& effort) {
    if (!tree.take(parent, up)) return Status::GAVE_UP;
    refresh(supply);
    // If more flows are infeasible, a cold start is faster.
    constexpr double MOST_WRONG = 0.2;
    return dual_simplex(tree, *this, MOST_WRONG, watch, effort);
  }

  // Mass that stays in place costs nothing, so only the differences move: a problem between the nodes that send and
  // those that receive.
  Status cold(const double* supply, Watch& watch, Effort& effort) {
    effort.cold = true;
    const int n = distances_.n;
    active_.clear();
    for (int v = 0; v < n; v++)
      if (supply[v] > 0) active_.push_back(v);
    const int rows = static_cast<int>(active_.size());
    for (int v = 0; v < n; v++)
      if (supply[v] < 0) active_.push_back(v);
    const int columns = static_cast<int>(active_.size()) - rows;
    supply_.resize(active_.size());
    for (size_t k = 0; k < active_.size(); k++) supply_[k] = supply[active_[k]];
    gather(rows, columns);
    const Status status = bipartite_.solve(block_.data(), rows, columns, supply_.data(), prices_.data(), watch, effort);
    if (status != Status::OPTIMAL) return status;
    if (!extend()) return Status::GAVE_UP;
    refresh(supply);
    // Repair what rounding has left infeasible.
    return dual_simplex(tree, *this, 1.0, watch, effort);
  }

  // Recompute potentials and flows from the tree, without accumulated rounding errors.
  void refresh(const double* supply) {
    for (int v = 0; v < tree.n; v++)
      if (v != tree.root) tree.nodes[v].length = distances_.row(v)[tree.nodes[v].parent];
    tree.set_potentials();
    tree.set_flows(supply);
  }

  // The arc between the subtree of `top` and the rest that becomes tight first.
  Entering entering(const SpanningTree& tree, int top, double sign) {
    const int n = distances_.n, moved = tree.nodes[top].size;
    const bool rows_inside = 2 * moved <= n;
    // slack(r) = min over the other part of C_rk + side·f_k, minus side·f_r, for a row r of the smaller part.
    const double side = rows_inside ? sign : -sign;
    for (int k = 0; k < n; k++) key_[k] = side * tree.potential[k];
    choose_rows(tree, top, rows_inside, side);
    const double bound = rows_.size() > 1 ? bound_in_single(tree, side) : INFINITE;
    double slack = INFINITE, sum = INFINITE;
    int best = -1;
    for (size_t k = 0; k < rows_.size(); k++) {
      if (least_[k] > bound) continue;
      const int r = rows_[k];
      const double least = least_sum(distances_.row(r), key_.data(), n);
      if (least - side * tree.potential[r] < slack) slack = least - side * tree.potential[r], best = r, sum = least;
    }
    if (best < 0) return {-1, -1, 0, 0};
    const double* row = distances_.row(best);
    const int other = first_within(row, key_.data(), n, sum);
    if (other < 0 || key_[other] == INFINITE) return {-1, -1, 0, 0};
    return rows_inside ? Entering{best, other, row[other], slack} : Entering{other, best, row[other], slack};
  }

 private:
  const Distances& distances_;
  Bipartite bipartite_;
  std::vector<double> key_, least_, block_, supply_, prices_;
  std::vector<float> single_key_;
  std::vector<int> active_, part_, rows_;
  std::vector<char> dominated_;

  // The costs between senders and receivers. A receiver far from all senders is expensive for all of them: the initial
  // guess of its price is its mean distance.
  void gather(int rows, int columns) {
    block_.resize(static_cast<size_t>(rows) * columns);
    prices_.assign(columns, 0.0);
    const double total = std::accumulate(supply_.begin(), supply_.begin() + rows, 0.0);
    for (int i = 0; i < rows; i++) {
      const double* from = distances_.row(active_[i]);
      double* to = block_.data() + static_cast<size_t>(i) * columns;
      const double share = supply_[i] / total;
      for (int j = 0; j < columns; j++) to[j] = from[active_[rows + j]];
      for (int j = 0; j < columns; j++) prices_[j] -= share * to[j];
    }
  }

  // Extend the tree of the active nodes to all nodes: each other node is attached to an active one so that its
  // potential is min_y C_xy + f_y, the largest feasible one.
  bool extend() {
    const SpanningTree& part = bipartite_.tree;
    const int n = distances_.n;
    std::fill(key_.begin(), key_.end(), INFINITE);
    for (int k = 0; k < part.n; k++) {
      const int v = active_[k];
      key_[v] = part.potential[k];
      tree.nodes[v].parent = part.nodes[k].parent < 0 ? -1 : active_[part.nodes[k].parent];
      tree.nodes[v].up = part.nodes[k].up;
    }
    tree.root = active_[part.root];
    tree.nodes[tree.root].up = 1;
    for (int v = 0; v < n; v++) {
      if (key_[v] < INFINITE) continue;
      const double* row = distances_.row(v);
      const int nearest = first_within(row, key_.data(), n, least_sum(row, key_.data(), n));
      tree.nodes[v].parent = nearest < 0 ? tree.root : nearest;
      tree.nodes[v].up = 1;
    }
    return tree.thread();
  }

  // The nodes of the smaller part are the rows to search, and are excluded as targets. Dominated rows are skipped: an
  // arc over a tight arc to another node of the part is no cheaper than one from that node, by the triangle inequality.
  void choose_rows(const SpanningTree& tree, int top, bool inside, double side) {
    const int moved = tree.nodes[top].size;
    const int first = inside ? top : tree.next[tree.listed[moved - 1]], count = inside ? moved : tree.n - moved;
    const int apex = inside ? top : tree.root;
    part_.resize(count);
    for (int k = 0, v = first; k < count; k++, v = tree.next[v]) part_[k] = v, key_[v] = INFINITE, dominated_[v] = 0;
    for (int v : part_)
      if (v != apex) dominated_[(tree.nodes[v].up > 0) == (side > 0) ? tree.nodes[v].parent : v] = 1;
    rows_.clear();
    for (int v : part_)
      if (!dominated_[v]) rows_.push_back(v);
  }

  // Reads half the memory: slacks in float32 first, then only the rows that may be minimal, in float64. Returns a bound
  // on the minimum of `least_`, including rounding errors.
  double bound_in_single(const SpanningTree& tree, double side) {
    const int n = distances_.n;
    for (int k = 0; k < n; k++) single_key_[k] = static_cast<float>(key_[k]);
    double bound = INFINITE;
    for (size_t k = 0; k < rows_.size(); k++) {
      const int r = rows_[k];
      least_[k] = least_sum(distances_.single_row(r), single_key_.data(), n) - side * tree.potential[r];
      bound = std::min(bound, least_[k]);
    }
    // Potentials differ by no more than the largest distance.
    const double magnitude = std::fabs(tree.potential[tree.root]) + distances_.largest;
    constexpr double EPSILON = std::numeric_limits<float>::epsilon();
    return bound + 4 * EPSILON * (distances_.largest + 2 * magnitude);
  }
};

}  // namespace pollux
