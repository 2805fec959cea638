// --allowed-origins and the flags beside it.
#include "app/tests/settle.h"

namespace tern::app {
namespace {

using Texts = std::vector<std::string>;

TEST(CorsFlags, ListsOfWordsAndOfJson) {
  EXPECT_TRUE(settled({}).serve.cors.origins.empty()) << "off by default";
  const auto words =
      settled({"--allowed-origins", "https://a.example", "http://[::1]:3000", "--allowed-methods=GET,POST"});
  EXPECT_EQ(words.serve.cors.origins, (Texts{"https://a.example", "http://[::1]:3000"}));
  EXPECT_EQ(words.serve.cors.methods, (Texts{"GET", "POST"}));
  EXPECT_EQ(words.serve.cors.headers, Texts{"*"});
  const auto json = settled({"--allowed-origins", R"(["https://a.example", "https://b.example"])",
                             "--allow-credentials", "--allowed-headers", R"(["Authorization"])"});
  EXPECT_EQ(json.serve.cors.origins, (Texts{"https://a.example", "https://b.example"}));
  EXPECT_EQ(json.serve.cors.headers, Texts{"Authorization"});
  EXPECT_TRUE(json.serve.cors.credentials);
  EXPECT_TRUE(settled({"--allowed-origins", "[]"}).serve.cors.origins.empty());
}

TEST(CorsFlags, MistakesEndTheStart) {
  EXPECT_EQ(failure({"--allowed-origins", R"(["*"])", "--allow-credentials"}),
            "--allowed-origins \"*\" cannot be combined with --allow-credentials: name the origins");
  EXPECT_EQ(failure({"--allow-credentials"}), "--allow-credentials has no effect without --allowed-origins");
  EXPECT_NE(failure({"--allowed-origins", R"(["https://a.example)"}).find("is not JSON"), std::string::npos);
  EXPECT_NE(failure({"--allowed-origins", R"(["https://a.example", 1])"}).find("no text"), std::string::npos);
  EXPECT_NE(failure({"--allowed-origins", "https://a.example/app"}).find("is no origin"), std::string::npos);
  EXPECT_NE(failure({"--allowed-origins", "*", "--allowed-methods", "FETCH"}).find("is none of"), std::string::npos);
}

}  // namespace
}  // namespace tern::app
