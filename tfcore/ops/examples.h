// tf.train.Example read by hand into dense columns; free of TensorFlow, so that it can be fuzzed alone.
//
//   Parser<std::string> parser(features);
//   Problem problem = parser.Row(bytes, size);      // appends one row to parser.columns()
//
// What it makes of an Example is what tf.io.parse_example (TensorFlow's example_proto_fast_parsing.cc) makes of it, also
// where that is peculiar: of two entries of a name the last wins; where a value is required, the last that is not empty;
// of a packed list the first run counts; a length that goes beyond the message around it means "to its end".
// It never reads outside of what it is given, and takes at most 32 bytes of memory for each byte of a list.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headway {

enum Kind { kInt64 = 0, kFloat = 1, kBytes = 2 };

// kRequired and kOptional have `size` values a row, an optional one may have none: then it is null. A list has any number.
enum Form { kRequired = 0, kOptional = 1, kList = 2 };

struct Feature {
  std::string name;
  Kind kind;
  Form form;
  size_t size;
};

struct Problem {
  enum Code { kNone, kDamaged, kUnfit, kSystem } code = kNone;  // unfit: an Example, but not of these features
  std::string what;
  explicit operator bool() const { return code != kNone; }
};

inline Problem Damaged(std::string what) { return {Problem::kDamaged, std::move(what)}; }

struct Span {
  const uint8_t* p = nullptr;
  const uint8_t* end = nullptr;
  bool empty() const { return p == end; }
  size_t size() const { return static_cast<size_t>(end - p); }

  // The next `n` bytes, or those that are left.
  Span Take(size_t n) {
    const Span taken{p, p + (n < size() ? n : size())};
    p = taken.end;
    return taken;
  }
};

__attribute__((noinline)) inline bool LongVarint(Span* in, uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 70 && in->p < in->end; shift += 7) {
    const uint8_t byte = *in->p++;
    result |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) {
      *value = result;
      return true;
    }
  }
  return false;
}

__attribute__((always_inline)) inline bool Varint64(Span* in, uint64_t* value) {
  if (in->p < in->end && *in->p < 128) {
    *value = *in->p++;
    return true;
  }
  return LongVarint(in, value);
}

// Lengths and tags: 32 bits, and what is above them is lost.
inline bool Varint32(Span* in, uint32_t* value) {
  uint64_t wide;
  if (!Varint64(in, &wide)) return false;
  *value = static_cast<uint32_t>(wide);
  return true;
}

// A message: its length, and what it holds.
inline bool Message(Span* in, Span* out) {
  uint32_t length;
  if (!Varint32(in, &length)) return false;
  *out = in->Take(length);
  return true;
}

// A string: unlike a message, it must be there to its last byte.
inline bool String(Span* in, Span* out) {
  uint32_t length;
  if (!Varint32(in, &length) || length > in->size()) return false;
  *out = in->Take(length);
  return true;
}

// Values of one feature, row after row. `S` is the string type.
template <class S>
struct Column {
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<S> strings;
  std::vector<uint8_t> present;   // by row, of optional features
  std::vector<int64_t> lengths;   // by row, of lists
};

template <class S>
class Parser {
 public:
  explicit Parser(std::vector<Feature> features)
      : features_(std::move(features)), columns_(features_.size()), found_(features_.size()), seen_(features_.size()) {
    for (size_t i = 0; i < features_.size(); i++) index_.emplace(features_[i].name, static_cast<int>(i));
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  std::vector<Column<S>>& columns() { return columns_; }
  const std::vector<Feature>& features() const { return features_; }

  void Reserve(size_t rows) {
    for (size_t i = 0; i < features_.size(); i++) {
      const Feature& feature = features_[i];
      if (feature.form == kList) columns_[i].lengths.reserve(rows);
      if (feature.form == kOptional) columns_[i].present.reserve(rows);
      const size_t values = rows * (feature.form == kList || feature.size > 64 ? 1 : feature.size);
      if (feature.kind == kInt64) columns_[i].ints.reserve(values);
      if (feature.kind == kFloat) columns_[i].floats.reserve(values);
      if (feature.kind == kBytes) columns_[i].strings.reserve(values);
    }
  }

  // Appends the row of one Example. After a problem the columns are of unequal length: throw them away.
  Problem Row(const uint8_t* data, size_t size) {
    std::fill(seen_.begin(), seen_.end(), uint8_t{0});
    entry_ = 0;
    Span example{data, data + size};
    while (!example.empty()) {
      if (*example.p == 0x0a) {
        example.p++;
        Span features;
        if (!Message(&example, &features)) return Broken();
        Problem problem = Locate(features);
        if (problem) return problem;
      } else if (!SkipField(&example)) {
        return Broken();
      }
    }
    for (size_t i = 0; i < features_.size(); i++) {
      Problem problem = Values(i);
      if (problem) return problem;
    }
    return {};
  }

 private:
  static Problem Broken() { return Damaged("not a tf.train.Example"); }

  static bool SkipField(Span* in) {
    uint32_t tag, length;
    uint64_t ignored;
    if (!Varint32(in, &tag)) return false;
    switch (tag & 7) {
      case 0: return Varint64(in, &ignored);
      case 1: return in->Take(8).size() == 8;
      case 2:
        if (!Varint32(in, &length)) return false;
        if (length <= INT32_MAX) in->Take(length);
        return true;
      case 5: return in->Take(4).size() == 4;
      default: return false;
    }
  }

  // Where the values of each wanted feature are.
  Problem Locate(Span features) {
    while (!features.empty()) {
      Span entry, key, value;
      if (ShortEntry(&features, &key, &value)) {
        Problem problem = Keep(key, value);
        if (problem) return problem;
        continue;
      }
      if (*features.p++ != 0x0a || !Message(&features, &entry)) return Broken();
      for (int field = 0; field < 2; field++) {
        uint32_t tag;
        if (!Varint32(&entry, &tag) || (tag != 0x0a && tag != 0x12) || !String(&entry, tag == 0x0a ? &key : &value)) {
          return Broken();
        }
      }
      if (!entry.empty()) return Broken();
      Problem problem = Keep(key, value);
      if (problem) return problem;
    }
    return {};
  }

  // The common layout: key, then value, each of fewer than 128 bytes.
  __attribute__((always_inline)) static bool ShortEntry(Span* in, Span* key, Span* value) {
    const uint8_t* const p = in->p;
    const size_t left = in->size();
    if (left < 6 || p[0] != 0x0a || p[1] >= 128 || p[1] > left - 2 || p[1] < 4 || p[2] != 0x0a) return false;
    const size_t size = p[1], name = p[3];
    if (name + 4 > size || p[4 + name] != 0x12 || p[5 + name] != size - 4 - name) return false;
    *key = {p + 4, p + 4 + name};
    *value = {p + 6 + name, p + 2 + size};
    in->p = p + 2 + size;
    return true;
  }

  __attribute__((always_inline)) Problem Keep(Span key, Span value) {
    const int i = Find(key);
    if (i < 0) return {};
    if (value.empty()) {
      if (features_[i].form == kRequired) return {};
    } else if (*value.p != 0x0a && *value.p != 0x12 && *value.p != 0x1a) {
      return Damaged("feature '" + features_[i].name + "' is of no known kind");
    }
    found_[i] = value;
    seen_[i] = 1;
    return {};
  }

  // Records mostly name the same features in the same order, so the last record's order is tried before the index.
  int Find(Span key) {
    const std::string_view name(reinterpret_cast<const char*>(key.p), key.size());
    const size_t at = entry_++;
    if (at < order_.size() && order_[at] >= 0 && features_[order_[at]].name == name) return order_[at];
    const auto known = index_.find(name);
    const int i = known == index_.end() ? -1 : known->second;
    if (at < order_.size()) {
      order_[at] = i;
    } else if (at < 16384) {
      order_.push_back(i);
    }
    return i;
  }

  Problem Values(size_t i) {
    const Feature& feature = features_[i];
    Column<S>& column = columns_[i];
    Span value = seen_[i] ? found_[i] : Span{};
    if (feature.size == 1 && feature.form != kList && One(value, feature.kind, &column)) {
      if (feature.form == kOptional) column.present.push_back(1);
      return {};
    }
    size_t count = 0;
    if (!value.empty()) {
      static const char* const names[] = {"int64", "float32", "bytes"};
      const uint8_t tag = *value.p++;
      const Kind kind = tag == 0x1a ? kInt64 : tag == 0x12 ? kFloat : kBytes;
      if (kind != feature.kind) {
        return Unfit(i, std::string("holds ") + names[kind] + ", not " + names[feature.kind]);
      }
      const size_t before = Size(column, kind);
      const bool good = kind == kInt64   ? Int64s(value, &column.ints)
                        : kind == kFloat ? Floats(value, &column.floats)
                                         : Strings(value, &column.strings);
      if (!good) return Damaged("the values of feature '" + feature.name + "' are damaged");
      count = Size(column, kind) - before;
    }
    if (feature.form == kList) {
      column.lengths.push_back(static_cast<int64_t>(count));
      return {};
    }
    if (count == 0 && feature.form == kOptional && feature.size != 0) {
      column.present.push_back(0);
      if (feature.kind == kInt64) column.ints.resize(column.ints.size() + feature.size);
      if (feature.kind == kFloat) column.floats.resize(column.floats.size() + feature.size);
      if (feature.kind == kBytes) column.strings.resize(column.strings.size() + feature.size);
      return {};
    }
    if (count != feature.size) {
      if (value.empty() && count == 0) return Unfit(i, "is missing");
      return Unfit(i, "holds " + std::to_string(count) + " values, not " + std::to_string(feature.size));
    }
    if (feature.form == kOptional) column.present.push_back(1);
    return {};
  }

  // The common layouts of one value of the right kind, with lengths of one byte.
  __attribute__((always_inline)) static bool One(Span value, Kind kind, Column<S>* column) {
    const uint8_t* const p = value.p;
    const size_t size = value.size();
    if (size < 4 || p[1] != size - 2 || size > 129) return false;
    if (kind == kFloat) {
      const bool packed = size == 8 && p[2] == 0x0a && p[3] == 4;
      if (p[0] != 0x12 || !(packed || (size == 7 && p[2] == 0x0d))) return false;
      float number;
      memcpy(&number, value.end - 4, 4);
      column->floats.push_back(number);
      return true;
    }
    if (kind == kBytes) {
      if (p[0] != 0x0a || p[2] != 0x0a || p[3] != size - 4) return false;
      column->strings.emplace_back(reinterpret_cast<const char*>(p + 4), size - 4);
      return true;
    }
    if (p[0] != 0x1a) return false;
    Span number{p + 4, value.end};
    if (p[2] == 0x08) {
      number.p = p + 3;
    } else if (p[2] != 0x0a || p[3] != size - 4) {
      return false;
    }
    uint64_t wide;
    if (!Varint64(&number, &wide) || !number.empty()) return false;
    column->ints.push_back(static_cast<int64_t>(wide));
    return true;
  }

  Problem Unfit(size_t i, const std::string& what) const {
    return {Problem::kUnfit, "feature '" + features_[i].name + "' " + what};
  }

  static size_t Size(const Column<S>& column, Kind kind) {
    return kind == kInt64 ? column.ints.size() : kind == kFloat ? column.floats.size() : column.strings.size();
  }

  // Each of these is given what follows the tag of a list.

  static bool Int64s(Span value, std::vector<int64_t>* out) {
    uint32_t length;
    uint64_t number;
    if (!Varint32(&value, &length)) return false;
    if (length == 0) return true;
    Span list = value.Take(length);
    if (list.empty()) return false;
    if (*list.p == 0x0a) {
      Span run;
      list.p++;
      if (!Message(&list, &run)) return false;
      while (!run.empty()) {
        if (!Varint64(&run, &number)) return false;
        out->push_back(static_cast<int64_t>(number));
      }
      return true;
    }
    while (!list.empty()) {
      if (*list.p++ != 0x08 || !Varint64(&list, &number)) return false;
      out->push_back(static_cast<int64_t>(number));
    }
    return true;
  }

  static bool Floats(Span value, std::vector<float>* out) {
    uint32_t length, bytes;
    if (!Varint32(&value, &length)) return false;
    if (length == 0) return true;
    Span list = value.Take(length);
    if (list.empty()) return false;
    if (*list.p == 0x0a) {
      list.p++;
      if (!Varint32(&list, &bytes)) return false;
      const size_t count = bytes / 4, before = out->size();
      if (count * 4 > list.size()) return false;
      out->resize(before + count);
      if (count) memcpy(out->data() + before, list.p, count * 4);
      return true;
    }
    while (!list.empty()) {
      float number;
      if (list.size() < 5 || *list.p != 0x0d) return false;
      memcpy(&number, list.p + 1, 4);
      out->push_back(number);
      list.p += 5;
    }
    return true;
  }

  static bool Strings(Span value, std::vector<S>* out) {
    uint32_t length;
    if (!Varint32(&value, &length)) return false;
    Span list = value.Take(length);
    while (!list.empty()) {
      Span text;
      if (*list.p++ != 0x0a || !String(&list, &text)) return false;
      out->emplace_back(reinterpret_cast<const char*>(text.p), text.size());
    }
    return true;
  }

  std::vector<Feature> features_;
  std::unordered_map<std::string_view, int> index_;
  std::vector<Column<S>> columns_;
  std::vector<Span> found_;
  std::vector<uint8_t> seen_;
  std::vector<int> order_;
  size_t entry_ = 0;
};

}  // namespace headway
