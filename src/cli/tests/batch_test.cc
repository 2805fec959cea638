// The files of tern run-batch: what a line may be, and that an interrupted run goes on.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/batch/batch_input.h"
#include "cli/batch/batch_results.h"
#include "json/json.h"

namespace tern::cli {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tern-batch-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }
  std::string read(const std::string& name) const {
    std::ostringstream out;
    out << std::ifstream(file(name), std::ios::binary).rdbuf();
    return out.str();
  }

 private:
  std::string path_;
};

std::string request(const std::string& id, const std::string& more = "") {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{"prompt":")" + id + "\"" +
         more + "}}";
}

TEST(BatchInput, LinesAreReadAgainFromTheFile) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += request(std::to_string(i), R"(,"user":")" + std::string(700, 'x') + "\"") + "\n";
  text += "\n \r\n" + request("last", R"(,"stream":true)");  // no line end
  const auto input = BatchInput::open(folder.write("in", text));
  ASSERT_TRUE(input.ok()) << input.error().message;
  ASSERT_EQ(input->size(), 3001u);
  for (const size_t i : {size_t{0}, size_t{1447}, size_t{2999}}) {
    const auto got = input->at(i);
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(got->custom_id, std::to_string(i));
    EXPECT_EQ(json::parse(got->body)->at("prompt").as_string(), std::to_string(i));
    EXPECT_FALSE(got->stream);
  }
  EXPECT_TRUE(input->at(3000)->stream);
}

TEST(BatchInput, AMistakeNamesItsLine) {
  const Folder folder;
  const auto wrong = [&](const std::string& line) {
    const auto input = BatchInput::open(folder.write("in", request("a") + "\n\n" + line + "\n"));
    return input.ok() ? std::string("none") : input.error().message;
  };
  EXPECT_NE(wrong("{").find("line 3: no JSON"), std::string::npos);
  EXPECT_NE(wrong("[]").find("line 3: a line must be a JSON object"), std::string::npos);
  EXPECT_NE(wrong(R"({"method":"POST","url":"/","body":{}})").find("line 3: custom_id is missing"), std::string::npos);
  EXPECT_NE(wrong(R"({"custom_id":7,"method":"POST","url":"/","body":{}})").find("line 3: "), std::string::npos);
  EXPECT_NE(wrong(R"({"custom_id":"a","method":"GET","url":"/","body":{}})").find("method must be"), std::string::npos);
  EXPECT_NE(wrong(R"({"custom_id":"a","method":"POST","url":"/","body":"x"})").find("body must be"), std::string::npos);
  EXPECT_EQ(wrong(request("b")), "none");
  EXPECT_EQ(BatchInput::open(folder.file("none")).error().code, ErrorCode::kNotFound);
  EXPECT_NE(BatchInput::open(folder.write("in", "\n")).error().message.find("holds no request"), std::string::npos);
}

TEST(BatchInput, FingerprintsTellFilesApart) {
  const Folder folder;
  const auto of = [&](const std::string& text) { return BatchInput::open(folder.write("in", text))->fingerprint(); };
  const Hash128 one = of(request("a") + "\n" + request("b") + "\n");
  EXPECT_EQ(one, of(request("a") + "\n" + request("b") + "\n"));
  EXPECT_NE(one, of(request("b") + "\n" + request("a") + "\n"));
  EXPECT_NE(one, of(request("a") + "\n" + request("c") + "\n"));
}

TEST(BatchResults, AnInterruptedRunGoesOnAndTheOrderIsTheInputs) {
  const Folder folder;
  const std::string output = folder.file("out");
  const Hash128 of{1, 2};
  {
    auto results = BatchResults::open(output, of, 4);
    ASSERT_TRUE(results.ok());
    EXPECT_EQ(results->earlier(), 0u);
    ASSERT_TRUE(results->put(2, 200, "two").ok());
    ASSERT_TRUE(results->put(0, 503, "zero failed").ok());
    ASSERT_TRUE(results->put(3, 400, "three").ok());
  }
  std::ofstream(output + ".part", std::ios::app) << "1 200 torn";  // no line end: the machine went down
  auto results = BatchResults::open(output, of, 4);
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->earlier(), 2u);
  EXPECT_TRUE(!results->done(0) && !results->done(1) && results->done(2) && results->done(3));
  ASSERT_TRUE(results->put(1, 200, "one").ok());
  ASSERT_TRUE(results->put(0, 200, "zero").ok());
  ASSERT_TRUE(results->finish().ok());
  EXPECT_EQ(folder.read("out"), "zero\none\ntwo\nthree\n");
  EXPECT_FALSE(std::filesystem::exists(output + ".part"));
}

TEST(BatchResults, AnswersOfAnotherInputAreNotMixedIn) {
  const Folder folder;
  const std::string output = folder.file("out");
  ASSERT_TRUE(BatchResults::open(output, {1, 2}, 2)->put(0, 200, "x").ok());
  const auto other = BatchResults::open(output, {1, 3}, 2);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another input"), std::string::npos);
  // Hostile lines in a file of the right head are passed over.
  std::ofstream(output + ".part", std::ios::app) << "99 200 x\n-1 200 x\nx\n1 x\n1 200 \n18446744073709551616 200 x\n";
  EXPECT_EQ(BatchResults::open(output, {1, 2}, 2)->earlier(), 1u);
}

TEST(BatchResults, LinesHaveFastDeploysShape) {
  const auto good = json::parse(batch_output_line("a\"b", "id", 200, R"({"x":1})"));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(
      json::dump(*good),
      R"({"id":"fastdeploy-id","custom_id":"a\"b","response":{"status_code":200,"request_id":"fastdeploy-batch-id",)"
      R"("body":{"x":1}},"error":null})");
  const auto bad = json::parse(batch_output_line("a", "id", 400, R"({"error":{}})"));
  ASSERT_TRUE(bad.ok());
  EXPECT_TRUE(bad->at("response").at("body").is_null());
  EXPECT_EQ(json::dump(bad->at("error")), R"({"error":{}})");
}

}  // namespace
}  // namespace tern::cli
