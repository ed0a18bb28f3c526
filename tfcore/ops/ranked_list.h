// One ranked list: its rows in order of label, its pairs cut into chunks that threads may run in any order, and the sum.
//
//     RankedList list;
//     list.Load(scores, labels, nullptr, rows, settings);
//     for (int64_t i = 0; i < list.chunks(); i++) list.Run(i, Widest());      // side by side, if wanted
//     list.Finish(&loss, &pairs, gradient);
//
// What is held is linear in the rows: at most kMostChunks gradients besides a few columns. How a list is cut follows from
// the list alone.
#ifndef HEADWAY_RANKED_LIST_H_
#define HEADWAY_RANKED_LIST_H_

#include <cmath>
#include <limits>

#include "pairs.h"

namespace headway {
namespace pairs {

constexpr int64_t kMostChunks = 16, kPairsOfChunk = int64_t{1} << 20;
constexpr int64_t kTileRows = 128, kTilePartners = 2048;

struct Settings {
  bool lambda = false;  // LambdaRank's weights
  int64_t k = 0;        // only ranks 1 .. k count in NDCG; 0: all
  const double* discounts = nullptr;  // of rank 1, 2, ...: 1 / log2(1 + rank), as many as a list has rows
};

class RankedList {
 public:
  // weights: null when all are 1. A row of weight 0 is not there.
  template <class T>
  void Load(const T* scores, const T* labels, const T* weights, int64_t rows, const Settings& settings) {
    given_ = rows;
    there_.clear();
    chunks_ = 0;
    pairs_ = 0;
    finite_ = true;
    T least = std::numeric_limits<T>::infinity(), most = -least;
    for (int64_t i = 0; i < rows; i++) {
      const T weight = weights ? weights[i] : T(1);
      if (weight == 0) continue;
      there_.push_back({static_cast<double>(labels[i]), static_cast<int32_t>(i)});
      finite_ &= std::isfinite(scores[i]) && std::isfinite(labels[i]) && std::isfinite(weight);
      least = std::min(least, scores[i]);
      most = std::max(most, scores[i]);
    }
    finite_ &= there_.empty() || std::isfinite(most - least);
    if (!finite_ || there_.size() < 2) return;
    std::sort(there_.begin(), there_.end());
    whole_.Clear();
    for (const Row& row : there_) {
      whole_.score.push_back(scores[row.at]);
      whole_.weight.push_back(weights ? static_cast<double>(weights[row.at]) : 1.0);
      whole_.place.push_back(static_cast<int32_t>(whole_.rows++));
    }
    Partners();
    if (pairs_ == 0) return;
    whole_.gain.assign(whole_.rows, 0.0);
    whole_.discount.assign(whole_.rows, 0.0);
    if (settings.lambda && !Gains(settings)) return;
    total_.assign(whole_.rows, 0.0);
    const bool few = settings.lambda && settings.k > 0 && 2 * settings.k < whole_.rows;
    passes_ = few ? 2 : 1;
    if (few) Split(settings.k);
    lambda_ = settings.lambda;
    whole_.Pad();
    for (int p = 0; p < passes_; p++) Cut(p);
  }

  int64_t chunks() const { return chunks_; }

  void Run(int64_t number, Width width) {
    Chunk& chunk = chunk_[number];
    Pass& pass = pass_[chunk.pass];
    double theirs[kTilePartners];
    const int64_t end = RoundedUp(pass.others->rows, kLanes);
    for (int64_t first = chunk.first; first < chunk.last; first += kTileRows) {
      const int64_t last = std::min(first + kTileRows, chunk.last);
      for (int64_t begin = pass.start[first] / kLanes * kLanes; begin < end; begin += kTilePartners) {
        const int64_t stop = std::min(begin + kTilePartners, end);
        std::fill(theirs, theirs + (stop - begin), 0.0);
        const Tile tile{pass.rows,   pass.start.data(), pass.others, first, last, begin, stop,
                           chunk.lanes, pass.own.data(),   theirs};
        lambda_ ? RunAt<true>(width, tile) : RunAt<false>(width, tile);
        double* const sums = chunk.theirs.data() - chunk.begin;
        for (int64_t j = begin; j < stop; j++) sums[j] += theirs[j - begin];
      }
    }
  }

  // *pairs: the summed weight[i] * weight[j] of all pairs. gradient: of each row given, by its score.
  template <class T>
  void Finish(T* loss, T* pairs, T* gradient) {
    std::fill(gradient, gradient + given_, T(0));
    if (!finite_) {
      const T nan = std::numeric_limits<T>::quiet_NaN();
      *loss = *pairs = nan;
      for (const Row& row : there_) gradient[row.at] = nan;
      return;
    }
    double sum = 0;
    for (int64_t c = 0; c < chunks_; c++) {
      const Chunk& chunk = chunk_[c];
      const Pass& pass = pass_[chunk.pass];
      for (double lane : chunk.lanes) sum += lane;
      for (int64_t j = chunk.begin; j < pass.others->rows; j++) {
        total_[pass.others->place[j]] += chunk.theirs[j - chunk.begin];
      }
      for (int64_t i = chunk.first; i < chunk.last; i++) total_[pass.rows->place[i]] += pass.own[i];
    }
    if (chunks_) {
      for (int64_t i = 0; i < whole_.rows; i++) gradient[there_[i].at] = static_cast<T>(total_[i]);
    }
    *loss = static_cast<T>(sum);
    *pairs = static_cast<T>(pairs_);
  }

 private:
  struct Row {
    double by;
    int32_t at;
    bool operator<(const Row& other) const { return by > other.by || (by == other.by && at < other.at); }
  };
  struct Pass {
    const List*rows, *others;
    std::vector<int64_t> start;  // of each row, its first partner; never falls
    std::vector<double> own;
  };
  struct Chunk {
    int pass;
    int64_t first, last, begin;  // rows, and the first partner of any of them
    double lanes[kLanes];
    std::vector<double> theirs;
  };

  // next_[i]: the first row with a lower label than i's.
  void Partners() {
    const int64_t n = whole_.rows;
    next_.assign(n, n);
    double lower = 0;  // the weight of the rows from next_[i] on
    for (int64_t i = n - 1, j = n; i >= 0; i--) {
      if (i + 1 < n && there_[i].by != there_[i + 1].by) {
        for (; j > i + 1; j--) lower += whole_.weight[j - 1];
      }
      next_[i] = j;
      pairs_ += lower * whole_.weight[i];
    }
  }

  // Gains over the best list's DCG, and discounts at the rank by score: Burges, "From RankNet to LambdaRank to LambdaMART",
  // 2010, sections 3 and 4. False when they are beyond what a number holds.
  bool Gains(const Settings& settings) {
    const int64_t n = whole_.rows, counted = settings.k > 0 ? std::min(settings.k, n) : n;
    gains_.resize(n);
    double best = 0;
    for (int64_t i = 0; i < n; i++) {
      const bool same = i > 0 && there_[i].by == there_[i - 1].by;
      gains_[i] = same ? gains_[i - 1] : std::expm1(there_[i].by * 0.69314718055994531);
      if (i < counted) best += gains_[i] * settings.discounts[i];
    }
    finite_ = std::isfinite(best);
    if (!finite_) return false;
    for (int64_t i = 0; i < n; i++) whole_.gain[i] = gains_[i] / best;
    ranked_.clear();
    for (int64_t i = 0; i < n; i++) ranked_.push_back({whole_.score[i], there_[i].at});
    place_.resize(given_);
    for (int64_t i = 0; i < n; i++) place_[there_[i].at] = static_cast<int32_t>(i);
    std::sort(ranked_.begin(), ranked_.end());  // of equal scores the earlier row ranks higher
    for (int64_t r = 0; r < counted; r++) {
      whole_.discount[place_[ranked_[r].at]] = settings.discounts[r];
    }
    return true;
  }

  // Only pairs with a row of the first k ranks move NDCG: those rows against all, and the others against those rows.
  void Split(int64_t k) {
    top_.Clear();
    rest_.Clear();
    std::vector<int64_t>&of_top = pass_[0].start, &of_rest = pass_[1].start;
    of_top.clear();
    of_rest.clear();
    for (int64_t i = 0; i < whole_.rows; i++) {
      const bool is_top = whole_.discount[i] > 0;
      (is_top ? top_ : rest_).Add(whole_, i);
      (is_top ? of_top : of_rest).push_back(next_[i]);
    }
    int64_t first = 0;
    for (int64_t& start : of_rest) {
      while (first < top_.rows && top_.place[first] < start) first++;
      start = first;
    }
    pass_[0].rows = &top_;
    pass_[0].others = &whole_;
    pass_[1].rows = &rest_;
    pass_[1].others = &top_;
    top_.Pad();
  }

  void Cut(int number) {
    Pass& pass = pass_[number];
    if (passes_ == 1) {
      pass.rows = pass.others = &whole_;
      pass.start = next_;
    }
    const int64_t partners = pass.others->rows;
    int64_t rows = 0, pairs = 0;
    while (rows < pass.rows->rows && pass.start[rows] < partners) pairs += partners - pass.start[rows++];
    pass.own.assign(rows, 0.0);
    const int64_t count = std::min(kMostChunks, std::max<int64_t>(pairs / kPairsOfChunk, 1));
    int64_t row = 0, done = 0;
    for (int64_t c = 1; c <= count && row < rows; c++) {
      const int64_t first = row, until = c == count ? pairs : pairs / count * c;
      while (row < rows && done < until) done += partners - pass.start[row++];
      if (row == first) continue;
      if (static_cast<size_t>(chunks_) == chunk_.size()) chunk_.emplace_back();
      Chunk& chunk = chunk_[chunks_++];
      chunk.pass = number;
      chunk.first = first;
      chunk.last = row;
      chunk.begin = pass.start[first] / kLanes * kLanes;
      std::fill(chunk.lanes, chunk.lanes + kLanes, 0.0);
      chunk.theirs.assign(RoundedUp(partners, kLanes) - chunk.begin, 0.0);
    }
  }

  int64_t given_ = 0, chunks_ = 0;
  int passes_ = 1;
  bool finite_ = true, lambda_ = false;
  double pairs_ = 0;
  std::vector<Row> there_, ranked_;
  std::vector<int32_t> place_;
  std::vector<int64_t> next_;
  std::vector<double> gains_, total_;
  List whole_, top_, rest_;
  Pass pass_[2];
  std::vector<Chunk> chunk_;
};

}  // namespace pairs
}  // namespace headway

#endif  // HEADWAY_RANKED_LIST_H_
