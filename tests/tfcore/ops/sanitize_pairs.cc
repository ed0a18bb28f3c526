// Random ranked lists under AddressSanitizer and UndefinedBehaviorSanitizer: the loss is what two loops in double give. Prints how
// many lists were compared, and a digest of all bits, which every width of vectors has alike.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "ranked_list.h"

using namespace headway;

uint64_t digest = 14695981039346656037u;  // FNV-1a

template <class T>
void Add(const T& value) {
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof(T));
  for (unsigned char byte : bytes) digest = (digest ^ byte) * 1099511628211u;
}

template <class T>
int64_t Check(std::mt19937* random, int64_t rows, double tolerance) {
  std::normal_distribution<double> normal(0, 8);
  const bool weighted = (*random)() % 2, nearly_all_equal = (*random)() % 2;
  std::vector<T> scores(rows), labels(rows), weights(rows), gradient(rows);
  for (int64_t i = 0; i < rows; i++) {
    scores[i] = static_cast<T>((*random)() % 4 ? normal(*random) : 1.0);
    labels[i] = static_cast<T>(nearly_all_equal ? (*random)() % 3 : (*random)() % 1000 / 64.0);
    weights[i] = static_cast<T>((*random)() % 3);
  }
  Settings settings;
  settings.lambda = (*random)() % 2;
  settings.k = settings.lambda ? (*random)() % 12 : 0;
  T loss, pairs;
  ComputeGroup(scores.data(), labels.data(), weighted ? weights.data() : nullptr, rows, settings, &loss, &pairs, gradient.data());
  Add(loss), Add(pairs);
  for (T each : gradient) Add(each);
  if (settings.lambda || rows > 2000) return 1;
  long double expected = 0;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < rows; j++) {
      if (!(labels[i] > labels[j])) continue;
      const double d = static_cast<double>(scores[i]) - static_cast<double>(scores[j]);
      const double c = weighted ? static_cast<double>(weights[i]) * static_cast<double>(weights[j]) : 1;
      expected += c * (std::max(-d, 0.0) + std::log1p(std::exp(-std::abs(d))));
    }
  }
  if (!(std::abs(expected - loss) <= tolerance * expected)) {
    fprintf(stderr, "%d rows: %.17g, not %.17Lg\n", int(rows), double(loss), expected);
    exit(1);
  }
  return 1;
}

int main() {
  std::mt19937 random(7);
  int64_t lists = 0;
  for (int64_t i = 0; i < 300; i++) {
    const int64_t rows = i < 40 ? i : i < 290 ? static_cast<int64_t>(random() % 200) : 1500 + static_cast<int64_t>(random() % 3000);
    lists += Check<float>(&random, rows, 1e-7);
    lists += Check<double>(&random, rows, 1e-13);
  }
  printf("lists %lld, digest %016llx\n", static_cast<long long>(lists), static_cast<unsigned long long>(digest));
}
