// Static exports that Paddle has written (tests/data/static): their weights are those of the checkpoints they were made
// from, bit by bit, whole, in pieces and for ranks that run.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <random>

#include "model/opened_folder.h"
#include "model/static/convert.h"
#include "model/static/static_source.h"
#include "model/tests/support.h"
#include "model/weights/pack.h"

namespace tern::model {
namespace {

constexpr const char* kNames[] = {"bfloat16", "weight_only_int8", "weight_only_int4"};

std::string data(const std::string& name) { return std::string(TERN_SOURCE_DIR) + "/tests/data/" + name; }
LoadOptions options_of(const std::string& folder, DType activation = DType::kF32) {
  LoadOptions o;
  o.path = folder;
  o.activation = activation;
  o.threads = 2;
  return o;
}

// A folder opened with all that reads from it.
struct Opened {
  OpenedFolder folder;
  DecoderWeights weights;
  WeightPlan plan;
  std::unique_ptr<WeightSource> source;

  explicit Opened(const LoadOptions& o)
      : folder(OpenedFolder::open(o, true).value()),
        plan(folder.plan(weights).value()),
        source(folder.source(plan).value()) {}
  int parameter(const std::string& name) const {
    for (size_t i = 0; i < plan.parameters.size(); ++i)
      if (plan.parameters[i].name == name) return static_cast<int>(i);
    return -1;
  }
  std::vector<float> read(const Piece& p) const {
    std::vector<float> out(static_cast<size_t>(p.rows * p.cols));
    source->read(p, tensor2(out.data(), DType::kF32, p.target_rows(), p.target_cols()));
    EXPECT_TRUE(source->check(p).ok());
    return out;
  }
};

TEST(Static, TwoRanksOfBfloat16GiveTheLogitsOfTheCheckpoint) {
  const std::vector<int32_t> ids = testing::some_ids(70, 160);
  for (const DType activation : {DType::kF32, DType::kBF16})
    EXPECT_EQ(testing::logits_of(options_of(data("static/bfloat16"), activation), ids),
              testing::logits_of(options_of(data("golden_s/qwen2_rope_yarn"), activation), ids));
}

TEST(Static, ConvertedItIsTheSameModel) {
  const std::vector<int32_t> ids = testing::some_ids(20, 160);
  for (const std::string name : kNames) {
    testing::TempFolder to;
    ConvertOptions o;
    o.load = options_of(data("static/" + name));
    o.write.out = to.file("out");
    o.write.file_bytes = 20'000;
    const Status converted = convert_static(o);
    ASSERT_TRUE(converted.ok()) << converted.error().message;
    EXPECT_TRUE(std::filesystem::exists(to.file("out/model.safetensors.index.json")));
    EXPECT_EQ(testing::logits_of(options_of(to.file("out")), ids),
              testing::logits_of(options_of(data("static/" + name)), ids));
    // Stopped anywhere it leaves nothing.
    int asked = 0;
    o.write.out = to.file("again");
    o.write.stop = [&] { return ++asked > 3; };
    EXPECT_EQ(convert_static(o).error().code, ErrorCode::kCancelled);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(to.path()), {}), 1);
  }
}

TEST(Static, FormatsAreThoseOfTheCodes) {
  for (const auto& [name, format] : {std::pair{"weight_only_int8", "wint8"}, {"weight_only_int4", "wint4"}}) {
    const Opened o(options_of(data(std::string("static/") + name)));
    const auto all = [&](int i) {
      const Parameter& p = o.plan.parameters[static_cast<size_t>(i)];
      return Piece{i, 0, p.rows, 0, p.cols};
    };
    EXPECT_EQ(o.source->code_format(all(o.parameter("model.layers.0.mlp.down_proj.weight"))), format);
    EXPECT_EQ(o.source->code_format(all(o.parameter("lm_head.weight"))), "");
    EXPECT_NE(o.folder.files.codes->method.find(name), std::string::npos);
  }
}

// Any block of a parameter, straight or transposed, as values or as codes, is that part of the whole.
TEST(Static, PiecesAreThatPartOfTheWhole) {
  std::mt19937 random(5);
  for (const std::string name : kNames) {
    const Opened o(options_of(data("static/" + name)));
    for (size_t i = 0; i < o.plan.parameters.size(); ++i) {
      const Parameter& p = o.plan.parameters[i];
      const std::vector<float> whole = o.read({static_cast<int>(i), 0, p.rows, 0, p.cols});
      for (int n = 0; n < 6; ++n) {
        Piece piece{static_cast<int>(i),
                    static_cast<int64_t>(random()) % p.rows,
                    0,
                    static_cast<int64_t>(random()) % p.cols,
                    0,
                    p.cols > 1 && n % 2 == 1};
        piece.rows = 1 + static_cast<int64_t>(random()) % (p.rows - piece.row);
        piece.cols = 1 + static_cast<int64_t>(random()) % (p.cols - piece.col);
        const std::vector<float> got = o.read(piece);
        for (int64_t r = 0; r < piece.rows; ++r)
          for (int64_t c = 0; c < piece.cols; ++c)
            ASSERT_EQ(got[static_cast<size_t>(piece.transposed ? c * piece.rows + r : r * piece.cols + c)],
                      whole[static_cast<size_t>((piece.row + r) * p.cols + piece.col + c)])
                << name << " " << p.name;
        o.source->release(piece);
      }
    }
  }
}

// What a rank packs are the rows and columns that it holds of the whole.
TEST(Static, IsCutForRanks) {
  for (const std::string name : {"bfloat16", "weight_only_int8"}) {
    const Opened whole(options_of(data("static/" + name)));
    for (int rank = 0; rank < 2; ++rank) {
      LoadOptions options = options_of(data("static/" + name));
      options.shard = {rank, 2, false};
      Opened o(options);
      ASSERT_TRUE(take_stored_formats(*o.source, options, device::DeviceKind::kCpu, o.plan).ok());
      const auto pack = pack_options(options, device::DeviceKind::kCpu);
      const Status packed = pack_weights(o.plan, *o.source, *pack, testing::cpu(), o.weights);
      ASSERT_TRUE(packed.ok()) << packed.error().message;
      for (const MatrixPlan& m : o.plan.matrices) {
        if (m.role == MatrixRole::kRouter) continue;
        const ops::WeightFormat& format = *m.out->format;
        std::vector<int32_t> ids(static_cast<size_t>(m.n));
        std::iota(ids.begin(), ids.end(), 0);
        std::vector<float> got(static_cast<size_t>(m.n * m.k)), want;
        ASSERT_TRUE(format
                        .gather_rows(*m.out, tensor1(ids.data(), DType::kI32, m.n),
                                     tensor2(got.data(), DType::kF32, m.n, m.k), {})
                        .ok());
        for (const Piece& p : m.pieces) {
          const std::vector<float> part = whole.read(p);
          want.insert(want.end(), part.begin(), part.end());
        }
        EXPECT_EQ(got, want) << name << " " << o.plan.parameters[static_cast<size_t>(m.pieces.front().parameter)].name;
      }
    }
  }
}

}  // namespace
}  // namespace tern::model
