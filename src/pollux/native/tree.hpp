// The basis of a network simplex: a spanning tree in which one arc can be exchanged for another.
#pragma once
#include <cstdint>
#include <vector>

namespace pollux {

// A node of the tree, and the arc to its parent.
//
// In a tree the supplies determine the flows: the flow over the arc is the supply of the whole subtree, `sent`,
// negative if the subtree receives. `up` is +1 if the arc points to the parent, −1 if it points to the node: the flow
// is feasible if both have the same sign.
struct Node {
  int parent;  // −1 for the root
  int size;    // nodes of the subtree
  double sent;
  double length;  // the cost of the arc
  int8_t up;
};

// All arcs i → j of the tree are tight: potential[i] − potential[j] is their cost. `next` and `previous` are a circular
// list of the nodes in preorder, in which a subtree is contiguous.
class SpanningTree {
 public:
  int n = 0, root = 0;
  std::vector<Node> nodes;
  std::vector<double> potential;
  std::vector<int> next, previous;
  // The subtree that was listed last, in preorder; `place` holds the positions of its nodes in the list.
  std::vector<int> listed, place;

  void resize(int count) {
    n = count;
    nodes.resize(n), potential.resize(n);
    for (auto* numbers : {&next, &previous, &listed, &place}) numbers->resize(n);
  }

  // Restore a stored tree; false if it is not a tree.
  bool take(const int* parent, const int8_t* up) {
    int roots = 0;
    for (int v = 0; v < n; v++) {
      if (parent[v] < -1 || parent[v] >= n || (up[v] != 1 && up[v] != -1)) return false;
      if (parent[v] == -1) root = v, roots++;
      nodes[v].parent = parent[v], nodes[v].up = up[v];
    }
    return roots == 1 && thread();
  }

  // Compute the preorder from the parents; false if they do not form a tree.
  bool thread() {
    // The children of a node as a linked list: its first child, and the next one with the same parent.
    std::vector<int>&first = place, &sibling = next, &waiting = previous;
    for (int v = 0; v < n; v++) first[v] = -1;
    for (int v = n - 1; v >= 0; v--) {
      if (v == root) continue;
      sibling[v] = first[nodes[v].parent];
      first[nodes[v].parent] = v;
    }
    int seen = 0, stacked = 1;
    waiting[0] = root;
    while (stacked) {
      const int v = waiting[--stacked];
      listed[seen++] = v;
      for (int child = first[v]; child >= 0; child = sibling[child]) waiting[stacked++] = child;
    }
    if (seen != n) return false;
    for (int k = 0; k < n; k++) link(listed[k], listed[k + 1 == n ? 0 : k + 1]);
    return true;
  }

  void set_potentials() {
    potential[root] = 0;
    for (int v = next[root]; v != root; v = next[v])
      potential[v] = potential[nodes[v].parent] + nodes[v].up * nodes[v].length;
  }

  void set_flows(const double* supply) {
    for (int v = 0; v < n; v++) nodes[v].sent = supply[v], nodes[v].size = 1;
    for (int v = previous[root]; v != root; v = previous[v]) {
      Node& parent = nodes[nodes[v].parent];
      parent.sent += nodes[v].sent, parent.size += nodes[v].size;
    }
  }

  // List the nodes of a subtree and shift their potentials.
  void list(int top, double change) {
    const int count = nodes[top].size;
    for (int k = 0, v = top; k < count; k++, v = next[v]) listed[k] = v, place[v] = k, potential[v] += change;
  }

  // Arc i → j, too cheap by `excess`, enters; the arc whose flow first becomes zero leaves. False if there is none: a
  // cycle of negative cost, which only rounding can cause.
  bool primal_pivot(int i, int j, double cost, double excess) {
    const int top = meeting(i, j);
    double least = 0;
    int out = -1;
    bool below_i = false;
    // Of several arcs that become zero at once, the last one around the cycle leaves, from its top: this keeps zero
    // flows pointing to the root if they do so at the start, and then no tree occurs twice.
    for (int v = i; v != top; v = nodes[v].parent)
      if (nodes[v].up > 0 && (out < 0 || nodes[v].sent < least)) least = nodes[v].sent, out = v, below_i = true;
    for (int v = j; v != top; v = nodes[v].parent)
      if (nodes[v].up < 0 && (out < 0 || -nodes[v].sent <= least)) least = -nodes[v].sent, out = v, below_i = false;
    if (out < 0) return false;
    list(out, below_i ? -excess : excess);
    below_i ? exchange(out, i, j, top, +1, cost) : exchange(out, j, i, top, -1, cost);
    return true;
  }

  // The subtree of `out`, just listed, is cut from its parent and attached by its node `in` to the node `onto` outside,
  // by an arc of direction `up` (+1: from in to onto). The paths from both parents to the root meet at `top`.
  void exchange(int out, int in, int onto, int top, int8_t up, double cost) {
    const int moved = nodes[out].size;
    const double mass = nodes[out].sent;
    for (int v = nodes[out].parent; v != top; v = nodes[v].parent) nodes[v].sent -= mass, nodes[v].size -= moved;
    for (int v = onto; v != top; v = nodes[v].parent) nodes[v].sent += mass, nodes[v].size += moved;
    link(previous[out], next[listed[moved - 1]]);
    // Along the stem from `in` up to `out` parents become children. The new preorder takes the old subtree of each stem
    // node without that of the one before: a segment before it and a segment behind it.
    int begin = place[in], end = begin + nodes[in].size, last = listed[end - 1];
    Node hung{onto, moved, mass, cost, up};
    for (int v = in;;) {
      const Node old = nodes[v];
      nodes[v] = hung;
      if (v == out) break;
      const int stretch = place[old.parent], stretch_end = stretch + nodes[old.parent].size;
      link(last, old.parent);
      last = listed[begin - 1];
      if (end < stretch_end) {
        link(last, listed[end]);
        last = listed[stretch_end - 1];
      }
      begin = stretch, end = stretch_end;
      hung = {v, moved - old.size, mass - old.sent, old.length, static_cast<int8_t>(-old.up)};
      v = old.parent;
    }
    const int behind = next[onto];
    link(onto, in);
    link(last, behind);
  }

  // The lowest common ancestor.
  int meeting(int u, int w) const {
    while (u != w) nodes[u].size < nodes[w].size ? u = nodes[u].parent : w = nodes[w].parent;
    return u;
  }

 private:
  void link(int a, int b) { next[a] = b, previous[b] = a; }
};

}  // namespace pollux
