// Transport from rows to columns with any costs, from a cold start: the primal network simplex.
#pragma once
#include <numeric>
#include <utility>

#include "simplex.hpp"

namespace pollux {

// Nodes 0 … rows−1 send `supply`, nodes rows … rows+columns−1 receive it; `cost` is (rows, columns).
class Bipartite {
 public:
  SpanningTree tree;

  // `prices`, if given, are guesses of the columns' potentials: the start is then greedy for cost plus price.
  Status solve(const double* cost, int rows, int columns, const double* supply, const double* prices, Watch& watch,
               Effort& effort) {
    cost_ = cost, rows_ = rows, columns_ = columns;
    if (!start(supply, prices)) return Status::GAVE_UP;
    const Status status = pivot(watch, effort);
    if (status != Status::GAVE_UP) return status;
    // It may have cycled through trees of equal value. One more unit from every node to the root leaves no zero flow,
    // so that each pivot gains; supplies are coarsened by the number of nodes, so that they stay exact.
    std::vector<double> moved(supply, supply + tree.n);
    perturb(moved);
    if (!start(moved.data(), prices)) return Status::GAVE_UP;
    const Status second = pivot(watch, effort);
    tree.set_flows(supply);
    return second;
  }

 private:
  const double* cost_ = nullptr;
  int rows_ = 0, columns_ = 0;
  std::vector<std::pair<int, int>> arcs_;
  std::vector<double> left_, key_;
  std::vector<int> order_, group_, degree_, neighbours_;

  const double* row(int i) const { return cost_ + static_cast<size_t>(i) * columns_; }

  // False if a cost is not a number.
  bool start(const double* supply, const double* prices) {
    tree.resize(rows_ + columns_);
    tree.root = static_cast<int>(std::min_element(supply + rows_, supply + tree.n) - supply);
    if (!greedy(supply, prices)) return false;
    span();
    tree.thread();
    tree.set_potentials();
    tree.set_flows(supply);
    return true;
  }

  // The largest rows first, each to its cheapest columns with remaining capacity.
  bool greedy(const double* supply, const double* prices) {
    arcs_.clear();
    left_.resize(columns_);
    for (int j = 0; j < columns_; j++) left_[j] = -supply[rows_ + j];
    key_.assign(columns_, 0.0);
    if (prices) std::copy(prices, prices + columns_, key_.begin());
    order_.resize(rows_);
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](int a, int b) { return supply[a] > supply[b]; });
    int open = columns_;
    for (int i : order_) {
      for (double mass = supply[i];;) {
        const int j = cheapest(row(i), key_.data(), least_sum(row(i), key_.data(), columns_));
        if (j < 0) return false;
        arcs_.push_back({i, rows_ + j});
        if (mass < left_[j] || open == 1) {
          left_[j] -= mass;
          break;
        }
        mass -= left_[j], left_[j] = 0, key_[j] = INFINITE, open--;
      }
    }
    return true;
  }

  int cheapest(const double* costs, const double* key, double least) const {
    return least < INFINITE ? first_within(costs, key, columns_, least) : -1;
  }

  // A spanning tree from the greedy arcs: arcs that close a cycle are left out, components are joined by empty arcs.
  void span() {
    group_.resize(tree.n);
    std::iota(group_.begin(), group_.end(), 0);
    size_t kept = 0;
    auto join = [&](int i, int j) {
      const int a = group(i), b = group(j);
      if (a == b) return;
      group_[a] = b;
      arcs_[kept++] = {i, j};
    };
    const size_t given = arcs_.size();
    arcs_.resize(given + tree.n);
    for (size_t k = 0; k < given; k++) join(arcs_[k].first, arcs_[k].second);
    for (int j = 0; j < columns_; j++) join(0, rows_ + j);
    for (int i = 0; i < rows_; i++) join(i, rows_);
    arcs_.resize(kept);
    hang();
  }

  int group(int v) {
    while (group_[v] != v) v = group_[v] = group_[group_[v]];
    return v;
  }

  // Parents, breadth first from the root.
  void hang() {
    degree_.assign(tree.n + 1, 0);
    for (const auto& arc : arcs_) degree_[arc.first + 1]++, degree_[arc.second + 1]++;
    for (int v = 0; v < tree.n; v++) degree_[v + 1] += degree_[v];
    neighbours_.resize(2 * arcs_.size());
    std::vector<int>& filled = tree.place;
    for (int v = 0; v < tree.n; v++) filled[v] = degree_[v];
    for (const auto& arc : arcs_) {
      neighbours_[filled[arc.first]++] = arc.second;
      neighbours_[filled[arc.second]++] = arc.first;
    }
    for (Node& node : tree.nodes) node.parent = -2;
    tree.nodes[tree.root].parent = -1;
    int seen = 0;
    tree.listed[seen++] = tree.root;
    for (int k = 0; k < seen; k++) {
      const int v = tree.listed[k];
      for (int e = degree_[v]; e < degree_[v + 1]; e++) {
        const int w = neighbours_[e];
        if (tree.nodes[w].parent != -2) continue;
        tree.nodes[w].parent = v;
        tree.nodes[w].up = w < rows_ ? +1 : -1;
        tree.nodes[w].length = w < rows_ ? row(w)[v - rows_] : row(v)[w - rows_];
        tree.listed[seen++] = w;
      }
    }
  }

  // Rows are searched in turn until a few have an arc that is too cheap; the best of those few enter.
  Status pivot(Watch& watch, Effort& effort) {
    constexpr int CANDIDATES = 16;
    struct Candidate {
      int i, j;
    } found[CANDIDATES];
    const double* columns = tree.potential.data() + rows_;
    const int64_t cap = effort.pivots + 200 * static_cast<int64_t>(tree.n) + 1000;
    int i = 0, clean = 0;
    while (true) {
      int count = 0;
      for (; clean < rows_ && count < CANDIDATES; clean++) {
        const double least = least_sum(row(i), columns, columns_), own = tree.potential[i];
        if (least < own - ROUNDING * std::fabs(own)) {
          const int j = cheapest(row(i), columns, least);
          if (j >= 0) found[count++] = {i, j};
        }
        if (++i == rows_) i = 0;
      }
      if (count == 0) return Status::OPTIMAL;
      while (count) {
        int best = -1, kept = 0;
        double excess = 0;
        for (int k = 0; k < count; k++) {
          const Candidate c = found[k];
          const double too_cheap = tree.potential[c.i] - columns[c.j] - row(c.i)[c.j];
          if (too_cheap <= ROUNDING * (std::fabs(tree.potential[c.i]) + std::fabs(columns[c.j]))) continue;
          if (too_cheap > excess) excess = too_cheap, best = kept;
          found[kept++] = c;
        }
        count = kept;
        if (best < 0) break;
        if (effort.pivots >= cap) return Status::GAVE_UP;
        if (++effort.pivots % PIVOTS_UNNOTICED == 0 && watch.interrupted()) return Status::INTERRUPTED;
        const Candidate c = found[best];
        if (!tree.primal_pivot(c.i, rows_ + c.j, row(c.i)[c.j], excess)) return Status::GAVE_UP;
        found[best] = found[--count];
        clean = 0;
      }
    }
  }

  void perturb(std::vector<double>& supply) const {
    const double step = std::ldexp(1.0, std::ilogb(2.0 * tree.n) + 1);
    double excess = 0;
    for (int v = 0; v < tree.n; v++) {
      // Rows must still send and columns receive: at least one step each.
      const double whole = std::nearbyint(supply[v] / step);
      supply[v] = step * (v < rows_ ? std::max(whole, 1.0) : std::min(whole, -1.0)) + (v == tree.root ? 0 : 1);
      excess += supply[v];
    }
    supply[tree.root] -= excess;
  }
};

}  // namespace pollux
