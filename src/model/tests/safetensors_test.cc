// A weights file is hostile input.
#include "model/files/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "model/files/checkpoint.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::raw_safetensors;
using testing::TempFolder;
using testing::write_file;

Expected<SafetensorsHeader> parse(const std::string& file) { return parse_safetensors(file, file.size()); }
std::string one(const std::string& entry, size_t bytes) { return raw_safetensors("{\"a\":" + entry + "}", bytes); }

void expect_error(const std::string& file, ErrorCode code, const std::string& says) {
  const auto header = parse(file);
  ASSERT_FALSE(header.ok()) << says;
  EXPECT_EQ(header.error().code, code) << header.error().message;
  EXPECT_NE(header.error().message.find(says), std::string::npos) << header.error().message << " lacks " << says;
}
void expect_corrupt(const std::string& file, const std::string& says) { expect_error(file, ErrorCode::kCorrupt, says); }

TEST(Safetensors, ReadsNamesTypesShapesAndMetadata) {
  const auto h = parse(
      raw_safetensors(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
                      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}   )",
                      12));
  ASSERT_TRUE(h.ok()) << h.error().message;
  EXPECT_EQ(h->metadata.at("format"), "pt");
  EXPECT_EQ(h->tensors.at("a").dtype, FileType::kBF16);
  EXPECT_EQ(h->tensors.at("b").shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(h->tensors.at("b").end - h->tensors.at("b").begin, 8u);
}

TEST(Safetensors, TakesScalarsAndEmptyTensors) {
  const auto h = parse(raw_safetensors(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
      4));
  ASSERT_TRUE(h.ok()) << h.error().message;
  EXPECT_TRUE(h->tensors.at("s").shape.empty());
}

TEST(Safetensors, RefusesBadHeaderLengths) {
  expect_corrupt("", "shorter than 8 bytes");
  expect_corrupt("1234567", "shorter than 8 bytes");
  std::string file = raw_safetensors("{}", 0);
  file[0] = 100;
  expect_corrupt(file, "exceeds the file");
  const uint64_t huge = kMaxSafetensorsHeader + 1;
  std::memcpy(file.data(), &huge, 8);
  expect_error(file, ErrorCode::kTooLarge, "exceeds 100000000");
  const uint64_t wraps = ~uint64_t{0} - 3;
  std::memcpy(file.data(), &wraps, 8);
  expect_error(file, ErrorCode::kTooLarge, "exceeds");
}

TEST(Safetensors, RefusesHeadersThatAreNotTheFormat) {
  expect_corrupt(raw_safetensors("", 0), "does not start");
  expect_corrupt(raw_safetensors("[]", 0), "does not start");
  expect_corrupt(raw_safetensors(" {}", 0), "does not start");
  expect_corrupt(raw_safetensors("{", 0), "incomplete");
  expect_corrupt(raw_safetensors("{} x", 0), "follows the object");
  expect_corrupt(raw_safetensors("{\"a\":3}", 0), "unexpected number");
  expect_corrupt(raw_safetensors("{\"\xff\":{}}", 0), "");
  expect_corrupt(raw_safetensors("{\"__metadata__\":{\"a\":1}}", 0), "unexpected number");
  expect_corrupt(raw_safetensors("{\"__metadata__\":{\"a\":{}}}", 0), "unexpected object");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", 4), "unknown field");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1]})", 4), "missing");
  expect_corrupt(one(R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})", 4), "");
  expect_corrupt(one(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4), "unexpected string");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})", 4), "unexpected array");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  expect_corrupt(raw_safetensors(deep, 0), "");
}

TEST(Safetensors, RefusesBadNumbers) {
  expect_corrupt(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4), "negative");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", 4), "fraction");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1e400],"data_offsets":[0,4]})", 4), "");
  expect_corrupt(one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})", 4), "too large");
  expect_corrupt(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})", 4), "does not fill");
  expect_corrupt(one(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})", 4), "does not fill");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})", 4), "too many dimensions");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", 4), "two numbers");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", 4), "unexpected number");
  expect_corrupt(one(R"({"dtype":"F99","shape":[1],"data_offsets":[0,4]})", 4), "unknown dtype");
}

TEST(Safetensors, RefusesBadOffsets) {
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", 4), "truncated");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]})", 4), "truncated");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4), "ends before");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8), "hole");
  expect_corrupt(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4), "does not fill");
  expect_corrupt(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 5), "follow the last tensor");
  expect_corrupt(
      raw_safetensors(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      "overlaps");
  expect_corrupt(
      raw_safetensors(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      "there twice");
}

TEST(Safetensors, EveryTruncationOfARealFileIsAnError) {
  const std::string file = testing::read_file(testing::golden("llama3/model.safetensors"));
  for (size_t n = 0; n < file.size(); n += n < 4096 ? 1 : 9973) EXPECT_FALSE(parse(file.substr(0, n)).ok()) << n;
  EXPECT_TRUE(parse(file).ok());
}

TEST(Checkpoint, IndexMustStayInsideTheFolder) {
  for (const char* name :
       {"/etc/passwd", "../x.safetensors", "a/../../x.safetensors", "a/..", "", "..", "x\\u0000.safetensors"}) {
    TempFolder folder;
    write_file(folder.file("model.safetensors.index.json"), fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
    const auto c = Checkpoint::open(folder.path());
    ASSERT_FALSE(c.ok()) << name;
    EXPECT_NE(c.error().message.find("points out"), std::string::npos) << c.error().message;
  }
}

TEST(Checkpoint, ShardsMayBeLinksAndLieInFolders) {
  TempFolder folder, elsewhere;
  testing::TestTensors a{{"a", {"F32", {1}, "1234"}}}, b{{"b", {"F32", {1}, "5678"}}};
  testing::write_tensors(elsewhere.file("blob"), a);
  std::filesystem::create_directory(folder.file("sub"));
  testing::write_tensors(folder.file("sub/2.safetensors"), b);
  std::filesystem::create_symlink(elsewhere.file("blob"), folder.file("1.safetensors"));
  write_file(folder.file("model.safetensors.index.json"),
             R"({"weight_map":{"a":"1.safetensors","b":"sub/2.safetensors"}})");
  const auto c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(std::memcmp(c->find("a")->data, "1234", 4), 0);
  EXPECT_EQ(std::memcmp(c->find("b")->data, "5678", 4), 0);
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  TempFolder folder;
  testing::TestTensors a{{"a", {"F32", {1}, "1234"}}};
  testing::write_tensors(folder.file("1.safetensors"), a);
  testing::write_tensors(folder.file("2.safetensors"), a);
  const auto open = [&](const char* index) {
    write_file(folder.file("model.safetensors.index.json"), index);
    return Checkpoint::open(folder.path());
  };
  EXPECT_NE(
      open(R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors"}})").error().message.find("says that c is in"),
      std::string::npos);
  EXPECT_EQ(open(R"({"weight_map":{"a":"3.safetensors"}})").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(open(R"({"weight_map":{"a":7}})").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(open(R"({"weight_map":[]})").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(open(R"([)").error().code, ErrorCode::kCorrupt);
  // Without an index a tensor in two files is an error.
  std::filesystem::remove(folder.file("model.safetensors.index.json"));
  EXPECT_NE(Checkpoint::open(folder.path()).error().message.find("more than one file"), std::string::npos);
}

TEST(Checkpoint, WrongFoldersAndFilesAreErrors) {
  TempFolder folder;
  EXPECT_EQ(Checkpoint::open(folder.file("none")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Checkpoint::open(folder.path()).error().code, ErrorCode::kNotFound);
  ASSERT_EQ(::mkfifo(folder.file("model.safetensors").c_str(), 0600), 0);  // opening must not wait for a writer
  EXPECT_EQ(Checkpoint::open(folder.path()).error().code, ErrorCode::kIo);
  std::filesystem::remove(folder.file("model.safetensors"));
  write_file(folder.file("model.safetensors"), "");
  EXPECT_EQ(Checkpoint::open(folder.path()).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace tern::model
