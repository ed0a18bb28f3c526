// SPDX-License-Identifier: Apache-2.0
// HeadwayPairwiseLoss: the loss of ranked lists over all pairs of unequal labels, and its gradient. Threads share the groups.
#include "ranked_list.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace headway {
namespace {

using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

constexpr double kNanosecondsOfPair = 3.0, kNanosecondsOfRow = 60.0;

absl::Status CheckSplits(const Tensor& splits, int64_t rows) {
  if (splits.dims() != 1 || splits.NumElements() < 1) {
    return InvalidArgument("row_splits is a vector of one number more than there are groups, not of shape ",
                           splits.shape().DebugString());
  }
  const auto at = splits.vec<int64_t>();
  const int64_t last = splits.NumElements() - 1;
  if (at(0) != 0) return InvalidArgument("row_splits must begin with 0, not with ", at(0));
  for (int64_t i = 0; i < last; i++) {
    if (at(i + 1) < at(i)) {
      return InvalidArgument("row_splits never falls: row_splits[", i + 1, "] is ", at(i + 1), ", the one before it ", at(i));
    }
  }
  if (at(last) != rows) {
    return InvalidArgument("row_splits must end with the number of rows: with ", rows, ", not with ", at(last));
  }
  return absl::OkStatus();
}

template <class T>
class PairwiseLossOp : public tensorflow::OpKernel {
 public:
  explicit PairwiseLossOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    std::string kind;
    OP_REQUIRES_OK(context, context->GetAttr("kind", &kind));
    OP_REQUIRES_OK(context, context->GetAttr("k", &settings_.k));
    settings_.lambda = kind == "lambdarank";
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const Tensor &scores = context->input(0), &labels = context->input(1), &weights = context->input(2);
    const Tensor& splits = context->input(3);
    OP_REQUIRES(context, scores.dims() == 1,
                InvalidArgument("scores is a vector, not of shape ", scores.shape().DebugString()));
    OP_REQUIRES(context, labels.shape() == scores.shape(),
                InvalidArgument("labels has the shape ", labels.shape().DebugString(), ", scores ",
                                scores.shape().DebugString()));
    const bool weighted = weights.shape() == scores.shape();
    OP_REQUIRES(context, weighted || (weights.dims() == 1 && weights.NumElements() == 0),
                InvalidArgument("weights has the shape ", weights.shape().DebugString(), ", scores ",
                                scores.shape().DebugString()));
    const int64_t rows = scores.NumElements();
    OP_REQUIRES_OK(context, CheckSplits(splits, rows));
    const T *score = scores.vec<T>().data(), *label = labels.vec<T>().data();
    const T* weight = weighted ? weights.vec<T>().data() : nullptr;
    for (int64_t i = 0; i < rows; i++) {
      OP_REQUIRES(context, !weight || !(weight[i] < 0),
                  InvalidArgument("weights must not be negative: weights[", i, "] is ", weight[i]));
      OP_REQUIRES(context, !settings_.lambda || !(label[i] < 0) || (weight && weight[i] == 0),
                  InvalidArgument("labels of lambdarank must not be negative, a gain is 2^label - 1: labels[", i, "] is ",
                                  label[i]));
    }
    const auto split = splits.vec<int64_t>();
    const int64_t groups = splits.NumElements() - 1;
    Tensor *loss, *gradient, *pairs;
    OP_REQUIRES_OK(context, context->allocate_output(0, {groups}, &loss));
    OP_REQUIRES_OK(context, context->allocate_output(1, {rows}, &gradient));
    OP_REQUIRES_OK(context, context->allocate_output(2, {groups}, &pairs));

    double cost = 1;
    for (int64_t g = 0; g < groups; g++) {
      const double size = static_cast<double>(split(g + 1) - split(g));
      cost += size * (kNanosecondsOfRow + kNanosecondsOfPair * size / 2);
    }
    const auto compute = [&](int64_t from, int64_t to) {
      for (int64_t g = from; g < to; g++) {
        ComputeGroup(score + split(g), label + split(g), weight ? weight + split(g) : nullptr, split(g + 1) - split(g),
                     settings_, &loss->vec<T>()(g), &pairs->vec<T>()(g), gradient->vec<T>().data() + split(g));
      }
    };
    auto* const threads = context->device()->tensorflow_cpu_worker_threads()->workers;
    threads->ParallelFor(groups, static_cast<int64_t>(cost / std::max<int64_t>(groups, 1)) + 1, compute);
  }

 private:
  Settings settings_;
};

absl::Status Shapes(tensorflow::shape_inference::InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle scores, weights, splits;
  tensorflow::shape_inference::DimensionHandle rows, groups;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &scores));
  TF_RETURN_IF_ERROR(c->Merge(scores, c->input(1), &scores));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &weights));
  rows = c->Dim(scores, 0);
  if (c->ValueKnown(c->Dim(weights, 0)) && c->Value(c->Dim(weights, 0)) != 0) {
    TF_RETURN_IF_ERROR(c->Merge(rows, c->Dim(weights, 0), &rows));
  }
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &splits));
  TF_RETURN_IF_ERROR(c->Subtract(c->Dim(splits, 0), 1, &groups));
  c->set_output(0, c->Vector(groups));
  c->set_output(1, c->Vector(rows));
  c->set_output(2, c->Vector(groups));
  return absl::OkStatus();
}

REGISTER_OP("HeadwayPairwiseLoss")
    .Input("scores: T")
    .Input("labels: T")
    .Input("weights: T")
    .Input("row_splits: int64")
    .Output("loss: T")
    .Output("gradient: T")
    .Output("pairs: T")
    .Attr("T: {float, double}")
    .Attr("kind: {'logistic', 'lambdarank'} = 'logistic'")
    .Attr("k: int >= 0 = 0")
    .SetShapeFn(Shapes)
    .Doc(R"doc(
The summed loss log(1 + exp(score[j] - score[i])) of the pairs (i, j) with label[i] > label[j] of each group of rows, times
weight[i] * weight[j] (no weights: 1), for lambdarank times the change of NDCG@k (0: of the whole list) if the two changed
places. gradient: of each row's group's loss by its score. pairs: the summed weight[i] * weight[j]. A row of weight 0 is
not there; a group with a number that is not finite has loss NaN.
)doc");

REGISTER_KERNEL_BUILDER(Name("HeadwayPairwiseLoss").Device(tensorflow::DEVICE_CPU).TypeConstraint<float>("T"),
                        PairwiseLossOp<float>);
REGISTER_KERNEL_BUILDER(Name("HeadwayPairwiseLoss").Device(tensorflow::DEVICE_CPU).TypeConstraint<double>("T"),
                        PairwiseLossOp<double>);

}  // namespace
}  // namespace headway
