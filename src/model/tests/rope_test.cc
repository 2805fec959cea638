// Golden numbers of models-other.md 1.2.
#include <gtest/gtest.h>

#include <cmath>

#include "model/rope/rope_frequencies.h"

namespace tern::model {
namespace {

RopeSpec read(const std::string& config, int head_dim, std::string* error = nullptr) {
  ConfigReader reader{json::parse(config).value().get_object()};
  const RopeSpec spec = read_rope(reader, ops::RopeStyle::kHalfSplit, head_dim);
  if (error == nullptr) {
    EXPECT_TRUE(reader.status().ok()) << reader.status().error().message;
  } else {
    *error = reader.status().ok() ? "" : reader.status().error().message;
  }
  return spec;
}

void expect_values(const RopeTable& t, std::initializer_list<std::pair<size_t, double>> want) {
  for (const auto& [i, v] : want) EXPECT_NEAR(t.inv_freq[i] / v, 1.0, 1e-6) << i;
}

TEST(Rope, DeepseekV3Yarn) {
  const RopeSpec s =
      read(R"({"max_position_embeddings":163840,"rope_theta":10000,"rope_scaling":{"type":"yarn","factor":40,
      "original_max_position_embeddings":4096,"beta_fast":32,"beta_slow":1,"mscale":1.0,"mscale_all_dim":1.0}})",
           64);
  const RopeTable t = make_rope_table(s, 0);
  expect_values(t, {{0, 1.0},
                    {10, 5.6234133e-2},
                    {11, 3.9006927e-2},
                    {16, 5.5e-3},
                    {22, 1.7782794e-4},
                    {23, 3.3338036e-5},
                    {31, 3.3338036e-6}});
  EXPECT_FLOAT_EQ(t.factor, 1.0f);
  const double m = yarn_mscale(s.factor, s.mscale_all_dim);
  EXPECT_NEAR(m * m / std::sqrt(192.0), 0.13523378, 1e-8);
}

TEST(Rope, GptOssYarnWholeAndTruncated) {
  const std::string head =
      R"({"max_position_embeddings":131072,"rope_parameters":{"rope_type":"yarn","rope_theta":150000,"factor":32,
      "original_max_position_embeddings":4096,"beta_fast":32,"beta_slow":1,"truncate":)";
  const RopeTable t = make_rope_table(read(head + "false}}", 64), 0);
  expect_values(t, {{8, 5.0813275e-2},
                    {9, 3.1705696e-2},
                    {12, 6.7949595e-3},
                    {17, 1.2931870e-4},
                    {18, 3.8308812e-5},
                    {31, 3.0235114e-7}});
  EXPECT_NEAR(t.factor, 1.3465736, 1e-6);
  expect_values(make_rope_table(read(head + "true}}", 64), 0),
                {{9, 3.1620752e-2}, {12, 7.0157139e-3}, {17, 2.2794780e-4}});
}

TEST(Rope, Llama3) {
  const auto config = [](int factor) {
    return R"({"max_position_embeddings":131072,"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":)" +
           std::to_string(factor) +
           R"(,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192}})";
  };
  const RopeTable wide = make_rope_table(read(config(8), 128), 0);
  expect_values(wide, {{28, 3.2114460e-3},
                       {29, 2.1665708e-3},
                       {30, 1.3718936e-3},
                       {34, 1.7850781e-4},
                       {35, 9.5562124e-5},
                       {63, 3.0689260e-7}});
  EXPECT_FLOAT_EQ(wide.factor, 1.0f);
  expect_values(make_rope_table(read(config(32), 64), 0), {{15, 1.2905479e-3}, {17, 9.7082878e-5}, {18, 1.9461638e-5}});
}

TEST(Rope, QwenYarnUsesTheFactorThatIsGiven) {
  const std::string with =
      R"({"max_position_embeddings":40960,"rope_theta":1000000,"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768}})";
  const RopeSpec s = read(with, 128);
  const RopeTable t = make_rope_table(s, 0), plain = make_rope_table(read(R"({"rope_theta":1000000})", 128), 0);
  EXPECT_NEAR(t.factor, 1.1386294, 1e-6);
  for (size_t i = 0; i <= 23; ++i) EXPECT_NEAR(t.inv_freq[i] / plain.inv_freq[i], 1.0, 1e-6) << i;
  for (size_t i = 24; i < 40; ++i) EXPECT_LT(t.inv_freq[i], plain.inv_freq[i]) << i;
  for (size_t i = 40; i < 64; ++i) EXPECT_NEAR(4.0 * t.inv_freq[i] / plain.inv_freq[i], 1.0, 1e-6) << i;
  // Without a factor the lengths give it.
  const RopeSpec derived = read(
      R"({"max_position_embeddings":40960,"rope_scaling":{"type":"yarn","original_max_position_embeddings":32768}})",
      128);
  EXPECT_DOUBLE_EQ(derived.factor, 1.25);
}

TEST(Rope, LinearAndDynamic) {
  const RopeTable plain = make_rope_table(read("{}", 64), 0);
  const RopeTable linear = make_rope_table(read(R"({"rope_scaling":{"type":"linear","factor":4}})", 64), 0);
  for (size_t i = 0; i < 32; ++i) EXPECT_FLOAT_EQ(linear.inv_freq[i], plain.inv_freq[i] / 4.0f);
  const RopeSpec s = read(R"({"max_position_embeddings":64,"rope_scaling":{"rope_type":"dynamic","factor":4}})", 64);
  EXPECT_EQ(make_rope_table(s, 0).inv_freq, plain.inv_freq);
  EXPECT_EQ(make_rope_table(s, 64).inv_freq, plain.inv_freq);
  const double theta = 10000.0 * std::pow(4.0 * 200 / 64 - 3.0, 64.0 / 62.0);
  const RopeTable t = make_rope_table(s, 200);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_NEAR(t.inv_freq[i] * std::pow(theta, static_cast<double>(2 * i) / 64.0), 1.0, 1e-6) << i;
}

TEST(Rope, SpellingsAgree) {
  const auto a = make_rope_table(read(R"({"rope_theta":5000,"rope_scaling":null})", 32), 0);
  EXPECT_EQ(a.inv_freq,
            make_rope_table(read(R"({"rope_parameters":{"rope_type":"default","rope_theta":5000}})", 32), 0).inv_freq);
  EXPECT_EQ(a.inv_freq,
            make_rope_table(
                read(R"({"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":5000}}})", 32), 0)
                .inv_freq);
  EXPECT_EQ(read(R"({"partial_rotary_factor":0.5})", 64).dim, 32);
  EXPECT_EQ(read(R"({"rope_parameters":{"partial_rotary_factor":0.25}})", 64).dim, 16);
}

TEST(Rope, SectionsChooseTheAxis) {
  const RopeTable t = make_rope_table(read(R"({"rope_scaling":{"type":"mrope","mrope_section":[16,24,24]}})", 128), 0);
  EXPECT_EQ(t.axis[15], 0);
  EXPECT_EQ(t.axis[16], 1);
  EXPECT_EQ(t.axis[39], 1);
  EXPECT_EQ(t.axis[40], 2);
  EXPECT_EQ(t.axis[63], 2);
  const RopeTable mixed = make_rope_table(
      read(R"({"rope_scaling":{"rope_type":"default","mrope_section":[24,20,20],"mrope_interleaved":true}})", 128), 0);
  EXPECT_EQ(mixed.axis[0], 0);
  EXPECT_EQ(mixed.axis[1], 1);
  EXPECT_EQ(mixed.axis[2], 2);
  EXPECT_EQ(mixed.axis[58], 1);
  EXPECT_EQ(mixed.axis[61], 0);
}

TEST(Rope, BadScalingsAreErrors) {
  const auto error = [](const std::string& config) {
    std::string e;
    read(config, 64, &e);
    return e;
  };
  EXPECT_NE(error(R"({"rope_scaling":{"type":"longrope"}})").find("longrope is not known"), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling":{"type":"linear"}})").find("no factor"), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling":{"type":"linear","factor":0}})").find("factor is 0"), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling":{"type":"linear","factor":-3}})").find("factor"), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling":[1]})").find("object"), std::string::npos);
  EXPECT_NE(error(R"({"rope_theta":0})").find("rope_theta"), std::string::npos);
  EXPECT_NE(error(R"({"rope_theta":"x"})").find("rope_theta"), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling":{"type":"llama3","factor":8}})").find("original_max"), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling":{"type":"mrope","mrope_section":[1,2]}})").find("add up"), std::string::npos);
  EXPECT_NE(error(R"({"partial_rotary_factor":0.02})").find("rotary width"), std::string::npos);
}

}  // namespace
}  // namespace tern::model
