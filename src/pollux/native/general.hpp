// Transport with any costs, metric or not.
#pragma once
#include "bipartite.hpp"

namespace pollux {

// Mass is not cancelled: a sample may both send and receive.
class General {
 public:
  General(const double* cost, int n) : cost_(cost), n_(n), key_(n), block_cost_(nullptr) {}

  Status solve(const double* p, const double* q, double* f, double* g, double& value, double& gap, Watch& watch,
               Effort& effort) {
    effort.cold = true;
    rows_.clear(), columns_.clear(), supply_.clear();
    double excess = 0;
    for (int i = 0; i < n_; i++) add(rows_, i, std::nearbyint(WHOLE * p[i]), excess);
    for (int j = 0; j < n_; j++) add(columns_, j, -std::nearbyint(WHOLE * q[j]), excess);
    const int rows = static_cast<int>(rows_.size()), columns = static_cast<int>(columns_.size());
    *std::min_element(supply_.begin() + rows, supply_.end()) -= excess;
    gather(rows, columns);
    const Status status = bipartite_.solve(block_cost_, rows, columns, supply_.data(), nullptr, watch, effort);
    if (status != Status::OPTIMAL) return status;
    SpanningTree& tree = bipartite_.tree;
    tree.set_potentials();
    double cost = 0;
    for (int v = 0; v < tree.n; v++)
      if (v != tree.root) cost += tree.nodes[v].sent * tree.nodes[v].up * tree.nodes[v].length;
    extend(rows, columns, f, g);
    double by_p = 0, by_q = 0;
    for (int i = 0; i < n_; i++) by_p += f[i] * p[i], by_q += g[i] * q[i];
    for (int i = 0; i < n_; i++) f[i] -= (by_p - by_q) / 2, g[i] += (by_p - by_q) / 2;
    value = by_p + by_q;
    gap = std::max(cost / WHOLE - value, 0.0);
    return Status::OPTIMAL;
  }

 private:
  static constexpr double WHOLE = 1125899906842624.0;  // 2⁵⁰
  const double* cost_;
  int n_;
  Bipartite bipartite_;
  std::vector<int> rows_, columns_;
  std::vector<double> supply_, block_, key_;
  const double* block_cost_;

  void add(std::vector<int>& nodes, int v, double mass, double& excess) {
    if (mass == 0) return;
    nodes.push_back(v), supply_.push_back(mass), excess += mass;
  }

  // The costs between samples with mass; no copy if all have mass.
  void gather(int rows, int columns) {
    block_cost_ = cost_;
    if (rows == n_ && columns == n_) return;
    block_.resize(static_cast<size_t>(rows) * columns);
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < columns; j++)
        block_[static_cast<size_t>(i) * columns + j] = cost_[static_cast<size_t>(rows_[i]) * n_ + columns_[j]];
    block_cost_ = block_.data();
  }

  // Potentials of samples without mass: the largest feasible ones, which are the gradient for mass that would appear
  // there.
  void extend(int rows, int columns, double* f, double* g) {
    const std::vector<double>& potential = bipartite_.tree.potential;
    std::fill(key_.begin(), key_.end(), INFINITE);
    for (int j = 0; j < columns; j++) key_[columns_[j]] = potential[rows + j], g[columns_[j]] = -potential[rows + j];
    for (int i = 0; i < n_; i++) f[i] = -INFINITE;
    for (int i = 0; i < rows; i++) f[rows_[i]] = potential[i];
    for (int i = 0; i < n_; i++)
      if (f[i] == -INFINITE) f[i] = least_sum(cost_ + static_cast<size_t>(i) * n_, key_.data(), n_);
    for (int j = 0; j < n_; j++) {
      if (key_[j] < INFINITE) continue;
      g[j] = INFINITE;
      for (int i = 0; i < n_; i++) g[j] = std::min(g[j], cost_[static_cast<size_t>(i) * n_ + j] - f[i]);
    }
  }
};

}  // namespace pollux
