// Random ranked lists under AddressSanitizer and UndefinedBehaviorSanitizer: every width of vectors gives the same bits,
// chunks in any order the same, and both are what two loops in double give. Prints how many lists were compared.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "ranked_list.h"

using namespace headway::pairs;

template <class T>
struct Outcome {
  T loss = 0, pairs = 0;
  std::vector<T> gradient;
  bool operator==(const Outcome& other) const {
    return !memcmp(&loss, &other.loss, sizeof(T)) && !memcmp(&pairs, &other.pairs, sizeof(T)) &&
           (gradient.empty() || !memcmp(gradient.data(), other.gradient.data(), gradient.size() * sizeof(T)));
  }
};

template <class T>
int64_t Check(std::mt19937* random, RankedList* list, int64_t rows, double tolerance) {
  std::normal_distribution<double> normal(0, 8);
  const bool weighted = (*random)() % 2, nearly_all_equal = (*random)() % 2;
  std::vector<T> scores(rows), labels(rows), weights(rows);
  for (int64_t i = 0; i < rows; i++) {
    scores[i] = static_cast<T>((*random)() % 4 ? normal(*random) : 1.0);
    labels[i] = static_cast<T>(nearly_all_equal ? (*random)() % 3 : (*random)() % 1000 / 64.0);
    weights[i] = static_cast<T>((*random)() % 3);
  }
  std::vector<double> discounts(rows);
  for (int64_t r = 0; r < rows; r++) discounts[r] = 1.0 / std::log2(2.0 + static_cast<double>(r));
  Settings settings;
  settings.lambda = (*random)() % 2;
  settings.k = settings.lambda ? (*random)() % 12 : 0;
  settings.discounts = discounts.data();

  std::vector<Width> widths = {Width::k16};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) widths.push_back(Width::k32);
  if (__builtin_cpu_supports("avx512f")) widths.push_back(Width::k64);
#endif
  Outcome<T> first;
  for (const Width width : widths) {
    for (const bool backwards : {false, true}) {
      Outcome<T> outcome;
      outcome.gradient.resize(rows);
      list->Load(scores.data(), labels.data(), weighted ? weights.data() : nullptr, rows, settings);
      for (int64_t c = 0; c < list->chunks(); c++) list->Run(backwards ? list->chunks() - 1 - c : c, width);
      list->Finish(&outcome.loss, &outcome.pairs, outcome.gradient.data());
      if (width == widths[0] && !backwards) first = outcome;
      if (!(outcome == first)) {
        fprintf(stderr, "other bits: %d rows, width %d, backwards %d\n", int(rows), int(width), int(backwards));
        exit(1);
      }
    }
  }
  if (!settings.lambda && rows <= 2000) {
    long double loss = 0;
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < rows; j++) {
        if (!(labels[i] > labels[j])) continue;
        const double d = static_cast<double>(scores[i]) - static_cast<double>(scores[j]);
        const double c = weighted ? static_cast<double>(weights[i]) * static_cast<double>(weights[j]) : 1;
        loss += c * (std::max(-d, 0.0) + std::log1p(std::exp(-std::abs(d))));
      }
    }
    if (!(std::abs(loss - first.loss) <= tolerance * loss)) {
      fprintf(stderr, "%d rows: %.17g, not %.17g\n", int(rows), double(first.loss), loss);
      exit(1);
    }
  }
  return 1;
}

int main() {
  std::mt19937 random(7);
  RankedList list;
  int64_t lists = 0;
  for (int64_t i = 0; i < 300; i++) {
    const int64_t rows = i < 40 ? i : i < 290 ? static_cast<int64_t>(random() % 200) : 1500 + static_cast<int64_t>(random() % 3000);
    lists += Check<float>(&random, &list, rows, 1e-7);
    lists += Check<double>(&random, &list, rows, 1e-13);
  }
  printf("lists %lld\n", static_cast<long long>(lists));
}
