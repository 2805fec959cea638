#include "model/reload.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "json/json.h"

namespace tern::model {
namespace {

Status same(std::string_view now, std::string_view then) {
  const auto parse = [](std::string_view text) { return json::parse(text).value().as_object(); };
  return check_same_config(parse(now), parse(then));
}

TEST(Reload, NullIsAsIfTheKeyWereNotThere) {
  EXPECT_TRUE(same(R"({"a": 1, "b": null})", R"({"a": 1, "b": null})").ok());
  EXPECT_TRUE(same(R"({"a": 1})", R"({"a": 1, "b": null})").ok());
  EXPECT_TRUE(same(R"({"a": 1, "b": null})", R"({"a": 1})").ok());
}

TEST(Reload, OtherValuesAreNamed) {
  for (const auto& [now, then] : {std::pair{R"({"a": 2})", R"({"a": 1})"}, std::pair{R"({})", R"({"a": 1})"},
                                  std::pair{R"({"a": 1})", R"({})"}, std::pair{R"({"a": null})", R"({"a": 1})"}}) {
    const Status status = same(now, then);
    ASSERT_FALSE(status.ok()) << now << then;
    EXPECT_EQ(status.error().message, "a of config.json is not as when the model was loaded");
  }
  EXPECT_TRUE(same(R"({"dtype": "float32"})", R"({"torch_dtype": "bfloat16"})").ok());
}

}  // namespace
}  // namespace tern::model
