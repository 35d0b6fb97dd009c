// Transport with shortest-path costs: a flow on the sparse graph itself, without its distance matrix.
#pragma once
#include <functional>
#include <mutex>
#include <queue>

#include "simplex.hpp"

namespace pollux {

// An undirected graph in compressed rows: the neighbours of v are ends[starts[v] … starts[v + 1]), in increasing order,
// each edge in both directions.
struct Graph {
  Graph(int nodes, const int* first, const int* neighbours, const double* edge_lengths)
      : n(nodes), starts(first), ends(neighbours), lengths(edge_lengths) {}

  int n;
  const int *starts, *ends;
  const double* lengths;

  struct Edge {
    int a, b;
    double length;
  };

  // Each edge once, shuffled: pricing looks at one block of edges at a time, and edges that are adjacent in memory are
  // adjacent in the graph, where one pivot repairs them all.
  const std::vector<Edge>& edges() const {
    std::call_once(made_, [this] {
      for (int a = 0; a < n; a++)
        for (int e = starts[a]; e < starts[a + 1]; e++)
          if (a < ends[e]) edges_.push_back({a, ends[e], lengths[e]});
      uint64_t state = 1;
      for (size_t k = edges_.size(); k > 1; k--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::swap(edges_[k - 1], edges_[(state >> 33) % k]);
      }
    });
    return edges_;
  }

  // The length of the edge between two nodes, or a negative number if there is none.
  double between(int a, int b) const {
    const int* found = std::lower_bound(ends + starts[a], ends + starts[a + 1], b);
    return found != ends + starts[a + 1] && *found == b ? lengths[found - ends] : -1;
  }

 private:
  mutable std::once_flag made_;
  mutable std::vector<Edge> edges_;
};

class Sparse {
 public:
  SpanningTree tree;

  explicit Sparse(const Graph& graph) : graph_(graph), inside_(graph.n, 0) { tree.resize(graph.n); }

  Status warm(const int* parent, const int8_t* up, const double* supply, Watch& watch, Effort& effort) {
    if (!tree.take(parent, up)) return Status::GAVE_UP;
    for (int v = 0; v < tree.n; v++)
      if (v != tree.root && (tree.nodes[v].length = graph_.between(v, parent[v])) < 0) return Status::GAVE_UP;
    refresh(supply);
    constexpr double MOST_WRONG = 0.5;
    const Status status = dual_simplex(tree, *this, MOST_WRONG, watch, effort);
    if (status != Status::GAVE_UP) return status;
    effort.cold = true;
    return primal(supply, watch, effort);
  }

  Status cold(const double* supply, Watch& watch, Effort& effort) {
    effort.cold = true;
    int largest = 0;
    for (int v = 1; v < tree.n; v++)
      if (std::fabs(supply[v]) > std::fabs(supply[largest])) largest = v;
    if (!shortest_paths(largest)) return Status::GAVE_UP;
    return primal(supply, watch, effort);
  }

  void refresh(const double* supply) {
    tree.set_potentials();
    tree.set_flows(supply);
  }

  Entering entering(const SpanningTree& tree, int top, double sign) {
    const int moved = tree.nodes[top].size;
    for (int k = 0; k < moved; k++) inside_[tree.listed[k]] = 1;
    Entering best{-1, -1, 0, INFINITE};
    auto look = [&](int v, bool within) {
      for (int e = graph_.starts[v]; e < graph_.starts[v + 1]; e++) {
        const int w = graph_.ends[e];
        if (inside_[w] == within) continue;
        const int in = within ? v : w, out = within ? w : v;
        const double slack = graph_.lengths[e] + sign * (tree.potential[out] - tree.potential[in]);
        if (slack < best.slack) best = {in, out, graph_.lengths[e], slack};
      }
    };
    if (2 * moved <= tree.n) {
      for (int k = 0; k < moved; k++) look(tree.listed[k], true);
    } else {
      for (int v = 0; v < tree.n; v++)
        if (!inside_[v]) look(v, false);
    }
    for (int k = 0; k < moved; k++) inside_[tree.listed[k]] = 0;
    return best;
  }

 private:
  const Graph& graph_;
  std::vector<char> inside_;

  // Dijkstra's shortest-path tree; false if the graph is not connected.
  bool shortest_paths(int root) {
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;
    std::vector<double>& distance = tree.potential;
    std::fill(distance.begin(), distance.end(), INFINITE);
    tree.root = root, tree.nodes[root].parent = -1, tree.nodes[root].up = 1, distance[root] = 0;
    queue.push({0, root});
    while (!queue.empty()) {
      const auto [reached, v] = queue.top();
      queue.pop();
      if (reached > distance[v]) continue;
      for (int e = graph_.starts[v]; e < graph_.starts[v + 1]; e++) {
        const int w = graph_.ends[e];
        if (reached + graph_.lengths[e] >= distance[w]) continue;
        distance[w] = reached + graph_.lengths[e];
        tree.nodes[w].parent = v, tree.nodes[w].length = graph_.lengths[e];
        queue.push({distance[w], w});
      }
    }
    for (int v = 0; v < tree.n; v++)
      if (distance[v] == INFINITE) return false;
    return tree.thread();
  }

  // Starts from any spanning tree: arcs may point either way, so it becomes feasible if they point along its flows.
  // Arcs of zero flow point to the root, so that no tree occurs twice.
  Status primal(const double* supply, Watch& watch, Effort& effort) {
    tree.set_flows(supply);
    for (int v = 0; v < tree.n; v++) tree.nodes[v].up = tree.nodes[v].sent >= 0 ? 1 : -1;
    tree.set_potentials();
    const auto& edges = graph_.edges();
    const size_t block = std::max<size_t>(64, static_cast<size_t>(std::sqrt(static_cast<double>(edges.size()))));
    const int64_t cap = effort.pivots + 200 * static_cast<int64_t>(tree.n) + 1000;
    size_t at = 0, clean = 0;
    while (true) {
      double excess = 0;
      const Graph::Edge* best = nullptr;
      for (size_t looked = 0; clean < edges.size() && !(best && looked >= block); looked++, clean++) {
        const Graph::Edge& edge = edges[at];
        const double a = tree.potential[edge.a], b = tree.potential[edge.b];
        const double too_cheap = std::fabs(a - b) - edge.length;
        if (too_cheap > excess && too_cheap > ROUNDING * (std::fabs(a) + std::fabs(b))) excess = too_cheap, best = &edge;
        if (++at == edges.size()) at = 0;
      }
      if (!best) return Status::OPTIMAL;
      clean = 0;
      if (effort.pivots >= cap) return Status::GAVE_UP;
      if (++effort.pivots % PIVOTS_UNNOTICED == 0 && watch.interrupted()) return Status::INTERRUPTED;
      const bool forth = tree.potential[best->a] > tree.potential[best->b];
      if (!tree.primal_pivot(forth ? best->a : best->b, forth ? best->b : best->a, best->length, excess))
        return Status::GAVE_UP;
    }
  }
};

}  // namespace pollux
