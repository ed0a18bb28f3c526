// SPDX-License-Identifier: Apache-2.0
// The pairs of one ranked list: the loss of all of them, and the gradient, in one pass.
//
// A pair costs c * log(1 + exp(-d)), where d is the score of the row with the higher label less the other's, and c is the
// product of both weights, for LambdaRank times the change of NDCG if both changed places (Burges, "From RankNet to LambdaRank
// to LambdaMART", 2010, sections 3 and 4). A row is compared with those behind it: rows are in order of falling label, so that
// none is compared with its equals; or of falling score, where few ranks count and the others need no look at each other.
//
// Pairs are computed and summed in double, whatever the scores are: of a row's gradient the pushes up and down may cancel out,
// and in float the rest would be noise. They go eight at a time, in what vectors the processor has; lane by lane it is the same
// whichever that is, and sums are taken in an order that follows from the list alone: results do not depend on the machine.
#ifndef HEADWAY_RANKED_LIST_H_
#define HEADWAY_RANKED_LIST_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#ifndef HEADWAY_WIDEST
#if defined(__x86_64__) && defined(__linux__)
#define HEADWAY_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HEADWAY_WIDEST
#endif
#endif

namespace headway {

typedef double V __attribute__((vector_size(64)));
typedef double InMemory __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t M __attribute__((vector_size(64)));
constexpr int64_t kLanes = 8;
constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
constexpr double kLog2e = 1.4426950408889634, kLn2High = 0.69314718036912382, kLn2Low = 1.9082149292705877e-10;
constexpr double kLeast = -707.0;  // below it exp is 0
// Chebyshev fits, right to 1e-15: exp on |x| <= ln(2) / 2, and 2 * atanh(sqrt(x)) / sqrt(x) on [0, 1/9]
constexpr double kExp[] = {2.51100492048186598e-8,   2.76326547225277919e-7,  2.75572408872298686e-6,
                           0.000024801485441561313,  0.000198412698900764028, 0.00138888889523528629,
                           0.00833333333331958962,   0.0416666666664879525,   0.166666666666666808,
                           0.50000000000000184,      1.0,                     1.0};
constexpr double kAtanh[] = {0.177807638261133029, 0.0988078904876478624, 0.135913054855798938, 0.153636762488916343,
                             0.18182859800473911,  0.22222190861346284,   0.285714291116571602, 0.399999999952876,
                             0.666666666666825743, 2.0};

// The rows of a list in order; rows of weight 0 make them a multiple of kLanes.
struct Columns {
  std::vector<double> score, label, weight, gain, discount, slope;
  std::vector<int64_t> start;  // of each row that is compared with others, the first of them
};

// Adds the gradient to `slope`, and returns the loss.
HEADWAY_WIDEST inline double SumPairs(Columns* columns, bool lambda) {
  const auto vectors = [](std::vector<double>& column) { return reinterpret_cast<InMemory*>(column.data()); };
  const InMemory *score = vectors(columns->score), *label = vectors(columns->label), *weight = vectors(columns->weight);
  const InMemory *gain = vectors(columns->gain), *discount = vectors(columns->discount);
  InMemory* slope = vectors(columns->slope);
  const int64_t rows = columns->start.size(), blocks = columns->score.size() / kLanes;
  const M lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  double total = 0;
  for (int64_t i = 0; i < rows; i++) {
    const int64_t start = columns->start[i], first = start / kLanes;
    const double of_score = columns->score[i], of_label = columns->label[i], of_weight = columns->weight[i];
    const double of_gain = columns->gain[i], of_discount = columns->discount[i];
    V loss = {}, own = {};
    for (int64_t j = first; j < blocks; j++) {
      V c = label[j] == of_label ? V{} : weight[j];
      if (j == first) c = lanes >= start - first * kLanes ? c : V{};
      if (lambda) {
        const V gains = of_gain - gain[j], discounts = of_discount - discount[j], factor = gains * discounts;
        c *= factor < 0 ? -factor : factor;
      }
      const M lower = label[j] > of_label;  // this row's label is
      const V apart = of_score - score[j], d = lower ? -apart : apart;
      const M wrong = d < 0;
      const V x = wrong ? d : -d;  // -|d|
      const V bounded = x < kLeast ? V{} + kLeast : x;
      const V t = bounded * kLog2e + kRound, n = t - kRound;
      const V r = bounded - n * kLn2High - n * kLn2Low;
      V p = V{} + kExp[0];
#pragma GCC unroll 16
      for (size_t k = 1; k < sizeof(kExp) / sizeof(double); k++) p = p * r + kExp[k];
      const V e = x < kLeast ? V{} : (V)((M)p + ((M)t << 52));  // p * 2^n: exp(-|d|)
      const V e1 = e + 1.0, e2 = e + 2.0, q = 1.0 / (e1 * e2);
      const V z = e * e1 * q, u = z * z;  // e / (2 + e), and log(1 + e) = 2 atanh(z)
      V a = V{} + kAtanh[0];
#pragma GCC unroll 16
      for (size_t k = 1; k < sizeof(kAtanh) / sizeof(double); k++) a = a * u + kAtanh[k];
      loss += c * (z * a - (wrong ? d : V{}));
      const V push = c * ((wrong ? V{} + 1.0 : e) * e2 * q);  // by sigmoid(-d)
      const V up = lower ? -push : push;
      own += up;
      slope[j] += of_weight * up;
    }
    double lost = 0, pushed = 0;
    for (int64_t l = 0; l < kLanes; l++) lost += loss[l], pushed += own[l];
    total += of_weight * lost;
    columns->slope[i] -= of_weight * pushed;
  }
  return total;
}

struct Settings {
  bool lambda = false;  // LambdaRank's weights
  int64_t k = 0;        // only ranks 1 .. k count in NDCG; 0: all
};

struct Row {
  double score, label, weight, discount;
  int64_t at;
};

inline void SortBy(double Row::*key, std::vector<Row>* rows) {
  std::sort(rows->begin(), rows->end(), [key](const Row& one, const Row& other) {
    return one.*key > other.*key || (one.*key == other.*key && one.at < other.at);
  });
}

// weights: null when all are 1. A row of weight 0 is not there. pairs: the summed products of the weights of all pairs.
template <class T>
void ComputeGroup(const T* scores, const T* labels, const T* weights, int64_t given, const Settings& settings, T* loss,
                  T* pairs, T* gradient) {
  std::fill(gradient, gradient + given, T(0));
  *loss = *pairs = 0;
  std::vector<Row> list;
  bool finite = true;
  T least = std::numeric_limits<T>::infinity(), most = -least;
  for (int64_t i = 0; i < given; i++) {
    const T weight = weights ? weights[i] : T(1);
    if (weight == 0) continue;
    list.push_back({double(scores[i]), double(labels[i]), double(weight), 0.0, i});
    finite &= std::isfinite(scores[i]) && std::isfinite(labels[i]) && std::isfinite(weight);
    least = std::min(least, scores[i]);
    most = std::max(most, scores[i]);
  }
  finite &= list.empty() || std::isfinite(most - least);
  const int64_t rows = list.size(), counted = settings.k > 0 ? std::min(settings.k, rows) : rows;
  const auto discount = [](int64_t rank) { return 1.0 / std::log2(2.0 + static_cast<double>(rank)); };
  const auto gain = [](double label) { return std::expm1(label * 0.69314718055994531); };
  std::vector<int64_t> lower(rows);  // by falling label, the first row of a lower label
  double all = 0, best = 0;
  if (finite) {
    SortBy(&Row::label, &list);
    double below = 0;
    for (int64_t i = rows - 1, next = rows; i >= 0; i--) {
      if (i + 1 < rows && list[i].label != list[i + 1].label) {
        for (; next > i + 1; next--) below += list[next - 1].weight;
      }
      lower[i] = next;
      all += below * list[i].weight;
    }
    for (int64_t r = 0; settings.lambda && r < counted; r++) best += gain(list[r].label) * discount(r);
    finite = std::isfinite(best);
  }
  if (!finite) {
    const T nan = std::numeric_limits<T>::quiet_NaN();
    *loss = *pairs = nan;
    for (const Row& row : list) gradient[row.at] = nan;
  }
  if (!finite || all == 0) return;

  if (settings.lambda) {
    SortBy(&Row::score, &list);  // of equal scores the earlier row ranks higher
    for (int64_t r = 0; r < counted; r++) list[r].discount = discount(r);
  }
  Columns columns;
  if (settings.lambda && 2 * counted < rows) {
    columns.start.resize(counted);
    std::iota(columns.start.begin(), columns.start.end(), 1);
  } else {
    SortBy(&Row::label, &list);
    columns.start = lower;
  }
  for (auto* column : {&columns.score, &columns.label, &columns.weight, &columns.gain, &columns.discount, &columns.slope}) {
    column->assign((rows + kLanes - 1) / kLanes * kLanes, 0.0);
  }
  for (int64_t r = 0; r < rows; r++) {
    columns.score[r] = list[r].score;
    columns.label[r] = list[r].label;
    columns.weight[r] = list[r].weight;
    columns.gain[r] = settings.lambda ? gain(list[r].label) / best : 0;
    columns.discount[r] = list[r].discount;
  }
  *loss = static_cast<T>(SumPairs(&columns, settings.lambda));
  *pairs = static_cast<T>(all);
  for (int64_t r = 0; r < rows; r++) gradient[list[r].at] = static_cast<T>(columns.slope[r]);
}

}  // namespace headway

#endif  // HEADWAY_RANKED_LIST_H_
