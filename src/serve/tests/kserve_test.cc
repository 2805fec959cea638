// KServe without gRPC (paddlenlp-server.md 3.3 to 3.5): what a request must be, and how answers are written.
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>
#include <vector>

#include "json/json.h"
#include "serve/kserve/infer.h"
#include "serve/kserve/wire.h"
#include "serve/native/payload.h"

namespace tern::serve::kserve {
namespace {

// A request without a fault, of which tests change parts.
struct Request {
  std::vector<Parameter> parameters;
  std::vector<int64_t> shape{1};
  std::vector<std::string_view> contents, outputs{"OUT"}, raw{std::string_view("\2\0\0\0[]", 6)};
  std::vector<InputTensor> inputs{{.name = "IN", .datatype = "BYTES"}};
  std::string_view model = "model", version, id = "r";
  bool ready = true;

  std::variant<std::string_view, CallStatus> read() {
    for (InputTensor& input : inputs) {
      input.shape = shape;
      input.contents = contents;
    }
    return read_infer({model, version, id, parameters, inputs, outputs, raw}, ready, {});
  }
  CallStatus refused() {
    const auto read_as = read();
    const auto* status = std::get_if<CallStatus>(&read_as);
    return status != nullptr ? *status : CallStatus{};
  }
};

TEST(Kserve, TakesDataInEitherForm) {
  Request r;
  EXPECT_EQ(std::get<std::string_view>(r.read()), "[]");
  r.raw.clear();
  r.contents = {"[1]"};
  r.inputs[0].has_contents = true;
  EXPECT_EQ(std::get<std::string_view>(r.read()), "[1]");
  r.raw = {""};
  EXPECT_EQ(r.refused().text,
            "contents field must not be specified when using raw_input_contents for 'IN' for model 'model'");
  r.raw.clear();
  r.contents.clear();
  EXPECT_EQ(r.refused().text, "unable to find data for input tensor 'IN' for model 'model' in request.");
}

TEST(Kserve, ElementsHaveTheirLength) {
  for (const std::string_view raw : {std::string_view("\3\0\0\0[]", 6), std::string_view("\1\0\0\0[]", 6),
                                     std::string_view("\2\0\0", 3), std::string_view("\2\0\0\x80[]", 6)}) {
    Request r;
    r.raw = {raw};
    EXPECT_EQ(r.refused().code, Code::kInvalidArgument);
  }
}

TEST(Kserve, ModelsAndVersions) {
  const auto said = [](std::string_view model, std::string_view version, bool ready) {
    return check_model(model, version, ready);
  };
  EXPECT_TRUE(said("model", "", true).ok());
  EXPECT_TRUE(said("model", "1", true).ok());
  EXPECT_EQ(said("m", "", true).text, "Request for unknown model: 'm' is not found");
  EXPECT_EQ(said("m", "", true).code, Code::kInvalidArgument);
  EXPECT_EQ(said("model", "7", true).text, "Request for unknown model: 'model' version 7 is not found");
  EXPECT_EQ(said("model", "7", true).code, Code::kNotFound);
  EXPECT_EQ(said("model", "1", false).text, "Request for unknown model: 'model' version 1 is not at ready state");
  EXPECT_EQ(said("model", "1", false).code, Code::kUnavailable);
  EXPECT_EQ(said("model", "-1", true).code, Code::kInvalidArgument);
  EXPECT_EQ(said("model", "one", true).code, Code::kInvalidArgument);
}

TEST(Kserve, ManyInputs) {
  Request r;
  r.inputs.push_back({.name = "X", .datatype = "BYTES"});
  r.raw.push_back(r.raw[0]);
  EXPECT_EQ(r.refused().text,
            "[request id: r] expected 1 inputs but got 2 inputs for model 'model'. Got input(s) ['IN','X'].");
  r.raw.push_back(r.raw[0]);
  EXPECT_EQ(r.refused().text, "there are 3 raw_input_contents for 2 inputs");
}

TEST(Kserve, Parameters) {
  const auto said = [](std::string_view name, Parameter::Kind kind) {
    Request r;
    r.parameters = {{name, kind, false}};
    return r.refused().text;
  };
  using enum Parameter::Kind;
  EXPECT_EQ(said("sequence_id", kText), "");
  EXPECT_EQ(said("sequence_id", kUint64), "");
  EXPECT_EQ(said("sequence_start", kBool), "");
  EXPECT_EQ(said("mine", kDouble), "");
  EXPECT_EQ(said("triton_enable_empty_final_response", kBool), "");
  EXPECT_EQ(said("sequence_end", kInt64), "invalid value type for 'sequence_end' parameter, expected bool_param.");
  EXPECT_EQ(said("timeout", kText), "invalid value type for 'timeout' parameter, expected int64_param.");
  EXPECT_NE(said("mine", kNone), "");
  EXPECT_NE(said("triton_x", kBool), "");
  EXPECT_NE(said(std::string(300, 'n'), kBool), "");
}

TEST(Kserve, LongNamesAreNotSaidInFull) {
  Request r;
  std::string name(254, 'n');
  name += "\u00e9\u00e9\u00e9";
  r.model = name;
  const std::string text = r.refused().text;
  EXPECT_NE(text.find("n\u00e9' is not found"), std::string::npos) << text;
}

TEST(Kserve, FieldsAreCounted) {
  const std::string_view tensor("\x2a\x00", 2);  // inputs, empty
  std::string many;
  for (int i = 0; i < 5; ++i) many += tensor;
  EXPECT_TRUE(few_fields(many, 5));
  EXPECT_FALSE(few_fields(many, 4));
  const std::string nested("\x2a\x06\x2a\x04\x42\x00\x42\x00", 8);  // one tensor whose contents have two empty elements
  EXPECT_TRUE(few_fields(nested, 4));
  EXPECT_FALSE(few_fields(nested, 3));
  EXPECT_FALSE(few_fields("\x2a\x05", 9));  // cut off
  EXPECT_FALSE(few_fields("\x0b", 9));      // a group
  EXPECT_TRUE(few_fields("", 0));
}

TEST(Kserve, AnswersAreAscii) {
  std::string out;
  append_ascii(out, "[\"a\u00e9\u4f60\U0001f600\"]");
  EXPECT_EQ(out, "[\"a\\u00e9\\u4f60\\ud83d\\ude00\"]");
}

TEST(Kserve, Peers) {
  EXPECT_EQ(address_of("ipv4:192.0.2.7:81").ss_family, AF_INET);
  EXPECT_EQ(address_of("ipv6:%5B2001:db8::1%5D:81").ss_family, AF_INET6);
  EXPECT_EQ(address_of("ipv6:[fe80::1%25eth0]:81").ss_family, AF_INET6);
  EXPECT_EQ(address_of("unix:/tmp/x").ss_family, AF_UNSPEC);
  EXPECT_EQ(address_of("ipv4:1.2.3:4").ss_family, AF_UNSPEC);
}

TEST(Kserve, PayloadsBecomeRequests) {
  auto read = native::read_payload(*json::parse(R"([{"req_id": "a", "text": "x", "eos_token_ids": 7, "timeout": 3}])"));
  auto request = native::take_payload(std::get<native::Payload>(read));
  const auto& r = std::get<native::NativeRequest>(request);
  EXPECT_EQ(r.req_id, "a");
  EXPECT_EQ(r.eos_token_ids, std::vector<int64_t>{7});
  EXPECT_TRUE(r.grpc && r.stream);
  EXPECT_EQ(r.timeout, 0);
  auto two = native::read_payload(*json::parse(R"([{"req_id": "a"}, 5])"));
  EXPECT_EQ(std::get<native::Refusal>(native::take_payload(std::get<native::Payload>(two))).message,
            "request data should not be empty and query num 2 should be 1");
  for (const char* text : {"5", "[]", "[{}]", "[5]", R"([{"req_id": 5}])"}) {
    auto wrong = native::read_payload(*json::parse(text));
    EXPECT_TRUE(std::holds_alternative<native::Refusal>(wrong)) << text;
  }
}

}  // namespace
}  // namespace tern::serve::kserve
