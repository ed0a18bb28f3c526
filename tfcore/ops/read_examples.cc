// HeadwayReadExamples: runs of records of TFRecord files of tf.train.Examples, straight to dense columns.
//
// The op has no state of its own: its output follows from the files. What it remembers of them (open files, where every
// 64th record begins, half-read gzip streams) is for speed, and is dropped when a file's size or time changes.
#include <list>

#include "frames.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/io/random_inputstream.h"
#include "tensorflow/core/lib/io/zlib_inputstream.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/file_statistics.h"

namespace headway {
namespace {

using tensorflow::Tensor;
using tensorflow::tstring;
using tensorflow::errors::DataLoss;
using tensorflow::errors::InvalidArgument;

constexpr int64_t kEvery = 64;
constexpr size_t kFiles = 64, kStreams = 16, kGzipBuffer = size_t{1} << 18;

Problem System(const absl::Status& status) { return {Problem::kSystem, std::string(status.message())}; }

// An open file, and where its records begin.
class File : public Input {
 public:
  std::string path;
  int64_t size = 0, time = 0;
  bool gzip = false;
  std::unique_ptr<tensorflow::RandomAccessFile> file;

  Problem Read(uint64_t at, size_t n, uint8_t* out, size_t* got) override {
    absl::string_view read;
    const absl::Status status = file->Read(at, n, &read, reinterpret_cast<char*>(out));
    if (!status.ok() && !absl::IsOutOfRange(status)) return System(status);
    if (read.data() != reinterpret_cast<char*>(out)) memmove(out, read.data(), read.size());
    *got = read.size();
    return {};
  }
  bool seekable() const override { return true; }

  // The last known record at or before `wanted`.
  void Nearest(int64_t wanted, int64_t* number, uint64_t* at) {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t mark = std::min(static_cast<size_t>(wanted / kEvery), marks_.size() - 1);
    *number = static_cast<int64_t>(mark) * kEvery;
    *at = marks_[mark];
  }

  void Note(int64_t number, uint64_t at) {
    if (number % kEvery) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (static_cast<size_t>(number / kEvery) == marks_.size()) marks_.push_back(at);
  }

  // How many bytes `count` records take, roughly.
  size_t Guess(int64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    const double records = static_cast<double>((marks_.size() - 1) * kEvery);
    const double each = records > 0 ? static_cast<double>(marks_.back()) / records : 256.0;
    return static_cast<size_t>(std::min(std::max(each * 1.05 * static_cast<double>(count), 4096.0), 4194304.0));
  }

 private:
  std::mutex mutex_;
  std::vector<uint64_t> marks_ = {0};
};

// A gzip file, and a gzip member of our own behind it. TensorFlow takes a gzip file that is cut off for one that has ended;
// only behind a whole one the mark comes out again.
constexpr char kMark[] = "headway:end\n";
constexpr size_t kMarkBytes = sizeof(kMark) - 1;
constexpr uint8_t kMarkGzip[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0x01, 0x0c, 0x00, 0xf3, 0xff, 0x68, 0x65,
    0x61, 0x64, 0x77, 0x61, 0x79, 0x3a, 0x65, 0x6e, 0x64, 0x0a, 0x55, 0xdc, 0xbf, 0xa8, 0x0c, 0x00, 0x00, 0x00};

class Marked : public tensorflow::io::InputStreamInterface {
 public:
  explicit Marked(tensorflow::RandomAccessFile* file) : file_(file) {}

  absl::Status ReadNBytes(int64_t wanted, tstring* result) override {
    absl::Status status;
    if (marked_ < 0) {
      status = file_.ReadNBytes(wanted, result);
      if (status.ok() || !absl::IsOutOfRange(status)) return status;
      marked_ = 0;
    } else {
      result->clear();
    }
    const int64_t left = static_cast<int64_t>(sizeof(kMarkGzip)) - marked_;
    const int64_t more = std::min<int64_t>(wanted - static_cast<int64_t>(result->size()), left);
    result->append(reinterpret_cast<const char*>(kMarkGzip) + marked_, static_cast<size_t>(more));
    marked_ += more;
    if (static_cast<int64_t>(result->size()) == wanted) return absl::OkStatus();
    return absl::OutOfRangeError("end of file");
  }
  int64_t Tell() const override { return file_.Tell() + std::max<int64_t>(marked_, 0); }
  absl::Status Reset() override {
    marked_ = -1;
    return file_.Reset();
  }

 private:
  tensorflow::io::RandomAccessInputStream file_;
  int64_t marked_ = -1;  // how much of the mark was read
};

// What a gzip file holds, from its beginning on.
class Stream : public Input {
 public:
  explicit Stream(std::shared_ptr<File> of)
      : file(std::move(of)), cursor(this), raw_(file->file.get()), inflated_(&raw_, kGzipBuffer, kGzipBuffer, Options()) {}

  Problem Read(uint64_t at, size_t n, uint8_t* out, size_t* got) override {
    // the last bytes that came are held back: they may be the mark
    const absl::Status status = inflated_.ReadNBytes(static_cast<int64_t>(n + kMarkBytes - held_.size()), &text_);
    if (!status.ok() && !absl::IsOutOfRange(status)) {
      return Damaged("not a whole gzip file: " + std::string(status.message()));
    }
    held_.append(text_.data(), text_.size());
    if (!status.ok() && (held_.size() < kMarkBytes || held_.compare(held_.size() - kMarkBytes, kMarkBytes, kMark))) {
      return Damaged("not a whole gzip file: it is cut off");
    }
    *got = held_.size() - kMarkBytes;
    memcpy(out, held_.data(), *got);
    held_.erase(0, *got);
    return {};
  }
  bool seekable() const override { return false; }

  const std::shared_ptr<File> file;
  Cursor cursor;

 private:
  static tensorflow::io::ZlibCompressionOptions Options() {
    auto options = tensorflow::io::ZlibCompressionOptions::GZIP();
    options.soft_fail_on_error = true;
    return options;
  }

  Marked raw_;
  tensorflow::io::ZlibInputStream inflated_;
  tstring text_;
  std::string held_;
};

// What is remembered between calls, of all files.
class Memory {
 public:
  static Memory* Get() {
    static auto* const memory = new Memory;
    return memory;
  }

  absl::Status Open(const std::string& path, std::shared_ptr<File>* out) {
    tensorflow::Env* const env = tensorflow::Env::Default();
    tensorflow::FileStatistics facts;
    TF_RETURN_IF_ERROR(env->Stat(path, &facts));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto i = files_.begin(); i != files_.end(); ++i) {
        if ((*i)->path != path) continue;
        if ((*i)->size == facts.length && (*i)->time == facts.mtime_nsec) {
          files_.splice(files_.begin(), files_, i);
          *out = files_.front();
          return absl::OkStatus();
        }
        files_.erase(i);
        break;
      }
    }
    auto made = std::make_shared<File>();
    made->path = path;
    made->size = facts.length;
    made->time = facts.mtime_nsec;
    TF_RETURN_IF_ERROR(env->NewRandomAccessFile(path, &made->file));
    uint8_t head[kHeader] = {};
    size_t got = 0;
    const Problem problem = made->Read(0, kHeader, head, &got);
    if (problem) return DataLoss(path, ": ", problem.what);
    const bool plain = got == kHeader && MaskedCrc32c(head, 8) == Load<uint32_t>(head + 8);
    made->gzip = got >= 2 && head[0] == 0x1f && head[1] == 0x8b && !plain;
    *out = made;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& file : files_) {
      if (file->path == path) return absl::OkStatus();  // another thread was quicker
    }
    files_.push_front(made);
    if (files_.size() > kFiles) files_.pop_back();
    return absl::OkStatus();
  }

  // The stream that is nearest before record `first`; it belongs to the caller until it is put back.
  std::unique_ptr<Stream> Take(const std::shared_ptr<File>& file, int64_t first) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto best = streams_.end();
      for (auto i = streams_.begin(); i != streams_.end(); ++i) {
        if ((*i)->file != file || (*i)->cursor.number() > first) continue;
        if (best == streams_.end() || (*i)->cursor.number() > (*best)->cursor.number()) best = i;
      }
      if (best != streams_.end()) {
        std::unique_ptr<Stream> found = std::move(*best);
        streams_.erase(best);
        return found;
      }
    }
    return std::make_unique<Stream>(file);
  }

  void Put(std::unique_ptr<Stream> stream) {
    std::unique_ptr<Stream> oldest;  // closed after the lock is given up
    std::lock_guard<std::mutex> lock(mutex_);
    streams_.push_front(std::move(stream));
    if (streams_.size() > kStreams) {
      oldest = std::move(streams_.back());
      streams_.pop_back();
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<File>> files_;
  std::list<std::unique_ptr<Stream>> streams_;
};

// Parses up to `count` records that follow record `first`; `*read` says how many there were.
Problem ReadRun(Cursor* cursor, File* marks, int64_t first, int64_t count, Parser<tstring>* parser, int64_t* read) {
  bool end = false;
  Span record;
  *read = 0;
  while (cursor->number() < first && !end) {
    if (Problem problem = cursor->Skip(&end)) return problem;
    if (marks && !end) marks->Note(cursor->number(), cursor->at());
  }
  if (marks) cursor->Ahead(marks->Guess(count));
  while (!end && *read < count) {
    if (Problem problem = cursor->Next(&record, &end)) return problem;
    if (end) break;
    if (Problem problem = parser->Row(record.p, record.size())) return cursor->OfLast(problem);
    if (marks) marks->Note(cursor->number(), cursor->at());
    ++*read;
  }
  return {};
}

Problem ReadFile(const std::shared_ptr<File>& file, int64_t first, int64_t count, Parser<tstring>* parser, int64_t* read) {
  if (file->gzip) {
    std::unique_ptr<Stream> stream = Memory::Get()->Take(file, first);
    if (Problem problem = ReadRun(&stream->cursor, nullptr, first, count, parser, read)) return problem;
    Memory::Get()->Put(std::move(stream));
    return {};
  }
  int64_t number;
  uint64_t at;
  file->Nearest(first, &number, &at);
  Cursor cursor(file.get(), at, number);
  // few bytes at a time where records are so large that it pays to step over them; else the run comes along
  const size_t some = file->Guess(kEvery);
  cursor.Ahead(number == first ? file->Guess(count) : some > (size_t{1} << 20) ? 4096 : some);
  return ReadRun(&cursor, file.get(), first, count, parser, read);
}

class ReadExamplesOp : public tensorflow::OpKernel {
 public:
  explicit ReadExamplesOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    std::vector<std::string> names;
    std::vector<tensorflow::DataType> types;
    std::vector<int> forms;
    OP_REQUIRES_OK(context, context->GetAttr("names", &names));
    OP_REQUIRES_OK(context, context->GetAttr("types", &types));
    OP_REQUIRES_OK(context, context->GetAttr("forms", &forms));
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(context, context->GetAttr("exact", &exact_));
    int count;
    OP_REQUIRES_OK(context, context->GetAttr("N", &count));
    const size_t n = names.size();
    OP_REQUIRES(context, n == types.size() && n == forms.size() && n == sizes_.size() && n == static_cast<size_t>(count),
                InvalidArgument("names, types, forms, sizes and N differ in length"));
    for (size_t i = 0; i < n; i++) {
      OP_REQUIRES(context, forms[i] >= kRequired && forms[i] <= kList && sizes_[i] >= 0 && sizes_[i] <= 1 << 20,
                  InvalidArgument("forms are 0, 1 or 2, and sizes 0 to ", 1 << 20));
      const Kind kind = types[i] == tensorflow::DT_INT64   ? kInt64
                        : types[i] == tensorflow::DT_FLOAT ? kFloat
                                                           : kBytes;
      features_.push_back({names[i], kind, static_cast<Form>(forms[i]), static_cast<size_t>(std::max(sizes_[i], 1))});
    }
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const Tensor &paths = context->input(0), &firsts = context->input(1), &counts = context->input(2);
    OP_REQUIRES(context,
                paths.dims() == 1 && firsts.shape() == paths.shape() && counts.shape() == paths.shape(),
                InvalidArgument("paths, first and count are vectors of one length"));
    const int64_t runs = paths.NumElements();
    Parser<tstring> parser(features_);
    int64_t rows = 0, wanted = 0;
    for (int64_t i = 0; i < runs; i++) {
      const int64_t first = firsts.vec<int64_t>()(i), count = counts.vec<int64_t>()(i);
      OP_REQUIRES(context, first >= 0 && count >= 0, InvalidArgument("first and count are not negative"));
      wanted = std::min<int64_t>(wanted + std::min<int64_t>(count, 1 << 16), 1 << 16);
    }
    parser.Reserve(static_cast<size_t>(wanted));
    std::shared_ptr<File> file;
    for (int64_t i = 0; i < runs; i++) {
      const std::string path(paths.vec<tstring>()(i));
      const int64_t first = firsts.vec<int64_t>()(i), count = counts.vec<int64_t>()(i);
      if (!file || file->path != path) OP_REQUIRES_OK(context, Memory::Get()->Open(path, &file));
      int64_t read;
      const Problem problem = ReadFile(file, first, count, &parser, &read);
      OP_REQUIRES(context, problem.code != Problem::kSystem, tensorflow::errors::Unavailable(path, ": ", problem.what));
      OP_REQUIRES(context, problem.code != Problem::kDamaged, DataLoss(path, ": ", problem.what));
      OP_REQUIRES(context, problem.code != Problem::kUnfit, InvalidArgument(path, ": ", problem.what));
      OP_REQUIRES(context, read == count || !exact_,
                  DataLoss(path, ": the file ends ", count - read, " records early (before record ", first + count, ")"));
      rows += read;
    }
    Tensor* out;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &out));
    out->scalar<int64_t>()() = rows;
    const int n = static_cast<int>(features_.size());
    for (int i = 0; i < n; i++) {
      Column<tstring>& column = parser.columns()[i];
      const Form form = features_[i].form;
      switch (features_[i].kind) {
        case kInt64: OP_REQUIRES_OK(context, Give(context, 1 + i, Shape(i, rows, column.ints.size()), &column.ints)); break;
        case kFloat: OP_REQUIRES_OK(context, Give(context, 1 + i, Shape(i, rows, column.floats.size()), &column.floats)); break;
        default: OP_REQUIRES_OK(context, Give(context, 1 + i, Shape(i, rows, column.strings.size()), &column.strings));
      }
      OP_REQUIRES_OK(context, context->allocate_output(1 + n + i, {form == kOptional ? rows : 0}, &out));
      std::copy(column.present.begin(), column.present.end(), out->flat<bool>().data());
      OP_REQUIRES_OK(context, Give(context, 1 + 2 * n + i, {form == kList ? rows : 0}, &column.lengths));
    }
  }

 private:
  tensorflow::TensorShape Shape(int i, int64_t rows, size_t values) const {
    if (features_[i].form == kList) return {static_cast<int64_t>(values)};
    if (sizes_[i] == 0) return {rows};
    return {rows, sizes_[i]};
  }

  template <class T>
  static absl::Status Give(tensorflow::OpKernelContext* context, int place, const tensorflow::TensorShape& shape,
                           std::vector<T>* values) {
    Tensor* out;
    TF_RETURN_IF_ERROR(context->allocate_output(place, shape, &out));
    std::move(values->begin(), values->end(), out->flat<T>().data());
    return absl::OkStatus();
  }

  std::vector<Feature> features_;
  std::vector<int> sizes_;
  bool exact_ = true;
};

absl::Status Shapes(tensorflow::shape_inference::InferenceContext* c) {
  std::vector<int> forms, sizes;
  TF_RETURN_IF_ERROR(c->GetAttr("forms", &forms));
  TF_RETURN_IF_ERROR(c->GetAttr("sizes", &sizes));
  const int n = static_cast<int>(std::min(forms.size(), sizes.size()));
  if (c->num_outputs() != 1 + 3 * n) return InvalidArgument("names, types, forms, sizes and N differ in length");
  c->set_output(0, c->Scalar());
  for (int i = 0; i < n; i++) {
    const bool scalar = forms[i] == kList || sizes[i] == 0;
    c->set_output(1 + i, scalar ? c->Vector(c->UnknownDim()) : c->Matrix(c->UnknownDim(), sizes[i]));
    c->set_output(1 + n + i, c->Vector(forms[i] == kOptional ? c->UnknownDim() : c->MakeDim(0)));
    c->set_output(1 + 2 * n + i, c->Vector(forms[i] == kList ? c->UnknownDim() : c->MakeDim(0)));
  }
  return absl::OkStatus();
}

REGISTER_OP("HeadwayReadExamples")
    .Input("paths: string")
    .Input("first: int64")
    .Input("count: int64")
    .Output("rows: int64")
    .Output("values: types")
    .Output("present: N * bool")
    .Output("lengths: N * int64")
    .Attr("names: list(string) >= 0")
    .Attr("types: list({int64, float, string}) >= 0")
    .Attr("forms: list(int) >= 0")
    .Attr("sizes: list(int) >= 0")
    .Attr("N: int >= 0")
    .Attr("exact: bool = true")
    .SetShapeFn(Shapes)
    .Doc(R"doc(
Records first[i] to first[i] + count[i] of paths[i], for every i, as columns. forms: 0 required, 1 optional, 2 a list of
any length; sizes: 0 one value a row, n a vector. With `exact`, a file that holds fewer records is an error; without it, what there is is
given. GZIP files are known by their first bytes; what of them is read in order is read once.
)doc");

REGISTER_KERNEL_BUILDER(Name("HeadwayReadExamples").Device(tensorflow::DEVICE_CPU), ReadExamplesOp);

}  // namespace
}  // namespace headway
