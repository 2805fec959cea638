#include "serve/kserve/infer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern::serve::kserve {
namespace {

constexpr std::string_view kInstance = "model_0_0";
constexpr std::string_view kOwnParameters = "triton_";
constexpr std::string_view kEmptyFinal = "triton_enable_empty_final_response";

CallStatus invalid(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

// What an error shows of a client's text: not more, and no half of a character.
std::string_view shown(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// Triton counts versions from 1; an empty one is the newest.
std::optional<CallStatus> check_version(std::string_view version) {
  if (version.empty()) return std::nullopt;
  int64_t number = 0;
  const auto end = std::from_chars(version.data(), version.data() + version.size(), number);
  if (end.ec != std::errc() || end.ptr != version.data() + version.size() || number < 0) {
    return invalid(
        fmt::format("failed to get model version from specified version string '{}' (version should be an "
                    "integral value > 0)",
                    shown(version, 32)));
  }
  if (number == 1) return std::nullopt;
  return CallStatus{Code::kNotFound, fmt::format("Request for unknown model: 'model' version {} is not found", number)};
}

struct Expectation {
  std::string_view name;
  bool (*takes)(Parameter::Kind kind);
  std::string_view wanted;
};

constexpr bool is_flag(Parameter::Kind kind) { return kind == Parameter::Kind::kBool; }
constexpr bool is_integer(Parameter::Kind kind) {
  return kind == Parameter::Kind::kInt64 || kind == Parameter::Kind::kUint64;
}
constexpr bool is_identifier(Parameter::Kind kind) { return is_integer(kind) || kind == Parameter::Kind::kText; }
constexpr bool is_any(Parameter::Kind kind) { return kind != Parameter::Kind::kNone; }

// What Triton reserves. None of them means anything to this model.
constexpr Expectation kReserved[] = {{"sequence_id", is_identifier, "int64_param or string_param"},
                                     {"sequence_start", is_flag, "bool_param"},
                                     {"sequence_end", is_flag, "bool_param"},
                                     {"priority", is_integer, "int64_param"},
                                     {"timeout", is_integer, "int64_param"},
                                     {kEmptyFinal, is_flag, "bool_param"}};

std::optional<CallStatus> check_parameter(const Parameter& p, const InferLimits& limits) {
  if (p.name.size() > limits.name_bytes) {
    return invalid(fmt::format("the name of a parameter has more than {} bytes", limits.name_bytes));
  }
  const Expectation own{p.name, is_any, "int64_param, bool_param, or string_param"};
  const auto* found = std::ranges::find(kReserved, p.name, &Expectation::name);
  const Expectation& want = found == std::end(kReserved) ? own : *found;
  if (found == std::end(kReserved) && p.name.starts_with(kOwnParameters)) {
    return invalid("parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
  }
  if (want.takes(p.kind)) return std::nullopt;
  return invalid(fmt::format("invalid value type for '{}' parameter, expected {}.", p.name, want.wanted));
}

std::string quoted_names(std::span<const InputTensor> inputs, const InferLimits& limits) {
  std::string out = "[";
  for (const InputTensor& input : inputs.first(std::min(inputs.size(), limits.shown_names))) {
    if (out.size() > 1) out += ',';
    out += fmt::format("'{}'", input.name);
  }
  return out + ']';
}

// One element of BYTES: a length of four bytes, the lowest first, and as many bytes.
std::variant<std::string_view, CallStatus> read_raw(std::string_view raw) {
  if (raw.size() >= 4) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i) size |= static_cast<uint32_t>(static_cast<unsigned char>(raw[i])) << (8 * i);
    if (size == raw.size() - 4) return raw.substr(4);
  }
  return invalid(
      "raw_input_contents of 'IN' for model 'model' must be one element: its length in four bytes, then its bytes");
}

// Whether the data are there. This is told before the input itself is looked at, as by the original.
std::optional<CallStatus> check_data(const InferRequest& r) {
  for (size_t i = 0; i < r.inputs.size(); ++i) {
    const InputTensor& input = r.inputs[i];
    if (input.has_contents && !r.raw.empty()) {
      return invalid(fmt::format(
          "contents field must not be specified when using raw_input_contents for '{}' for model 'model'", input.name));
    }
    if (input.has_contents ? input.contents.empty() : i >= r.raw.size()) {
      return invalid(
          fmt::format("unable to find data for input tensor '{}' for model 'model' in request.", input.name));
    }
  }
  if (r.raw.size() > r.inputs.size() && !r.inputs.empty()) {
    return invalid(fmt::format("there are {} raw_input_contents for {} inputs", r.raw.size(), r.inputs.size()));
  }
  return std::nullopt;
}

std::optional<CallStatus> check_input(const InferRequest& r, const InferLimits& limits) {
  const std::string prefix = fmt::format("[request id: {}] ", r.id.empty() ? std::string_view("<id_unknown>") : r.id);
  const bool known = std::ranges::any_of(r.inputs, [](const InputTensor& i) { return i.name == kInput; });
  if (r.inputs.size() != 1 || !known) {
    if (r.inputs.size() == 1) {
      return invalid(fmt::format("unexpected inference input '{}' for model 'model'", r.inputs[0].name));
    }
    std::string text = fmt::format("{}expected 1 inputs but got {} inputs for model 'model'. Got input(s) {}", prefix,
                                   r.inputs.size(), quoted_names(r.inputs, limits));
    text += known ? "." : ", but missing required input(s) ['IN']. Please provide all required input(s).";
    return invalid(std::move(text));
  }
  const InputTensor& in = r.inputs[0];
  if (in.datatype != "BYTES") {
    return invalid(fmt::format("{}inference input 'IN' data-type is '{}', but model 'model' expects 'BYTES'", prefix,
                               shown(in.datatype, 32)));
  }
  if (in.shape.size() != 1 || in.shape[0] != 1) {
    const auto shown = in.shape.first(std::min(in.shape.size(), limits.shown_names));
    return invalid(fmt::format("{}unexpected shape for input 'IN' for model 'model'. Expected [1], got [{}]. ", prefix,
                               fmt::join(shown, ",")));
  }
  return std::nullopt;
}

}  // namespace

CallStatus check_model(std::string_view model, std::string_view version, bool ready) {
  if (auto wrong = check_version(version); wrong && wrong->code == Code::kInvalidArgument) return *std::move(wrong);
  if (model != kModelName) {
    return invalid(fmt::format("Request for unknown model: '{}' is not found", shown(model, 256)));
  }
  if (auto wrong = check_version(version)) return *std::move(wrong);
  if (ready) return {};
  return {Code::kUnavailable, "Request for unknown model: 'model' version 1 is not at ready state"};
}

std::variant<std::string_view, CallStatus> read_infer(const InferRequest& r, bool ready, const InferLimits& limits) {
  if (r.id.size() > limits.name_bytes) {
    return invalid(fmt::format("the id of the request has more than {} bytes", limits.name_bytes));
  }
  if (CallStatus model = check_model(r.model, r.version, ready); !model.ok()) return model;
  for (const Parameter& p : r.parameters) {
    if (auto wrong = check_parameter(p, limits)) return *std::move(wrong);
  }
  for (const InputTensor& input : r.inputs) {
    if (input.name.size() > limits.name_bytes) {
      return invalid(fmt::format("the name of an input has more than {} bytes", limits.name_bytes));
    }
  }
  for (const std::string_view output : r.outputs) {
    if (output == kOutput) continue;
    return invalid(fmt::format("unexpected inference output '{}' for model 'model'", shown(output, limits.name_bytes)));
  }
  if (auto wrong = check_data(r)) return *std::move(wrong);
  if (auto wrong = check_input(r, limits)) return *std::move(wrong);
  if (r.raw.empty()) return r.inputs[0].contents.front();
  return read_raw(r.raw.front());
}

sockaddr_storage address_of(std::string_view peer) {
  sockaddr_storage out{};
  out.ss_family = AF_UNSPEC;
  const size_t scheme = peer.find(':'), port = peer.rfind(':');
  if (scheme == std::string_view::npos || port <= scheme) return out;
  const std::string_view kind = peer.substr(0, scheme);
  std::string host(peer.substr(scheme + 1, port - scheme - 1));
  if (kind == "ipv6") {
    for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
      if (const size_t at = host.find(bracket); at != std::string::npos) host.erase(at, bracket.size());
    }
    host.resize(std::min(host.find('%'), host.size()));  // without its zone
    auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
    if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) out.ss_family = AF_INET6;
  } else if (kind == "ipv4") {
    auto& v4 = reinterpret_cast<sockaddr_in&>(out);
    if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) out.ss_family = AF_INET;
  }
  return out;
}

CallStatus failed_to_process(std::string_view what) {
  return {Code::kInternal,
          fmt::format("Failed to process the request(s) for model '{}', message: {}", kInstance, what)};
}

void append_ascii(std::string& out, std::string_view json) {
  for (size_t i = 0; i < json.size();) {
    const auto lead = static_cast<unsigned char>(json[i]);
    if (lead < 0x80) {
      size_t end = i + 1;
      while (end < json.size() && static_cast<unsigned char>(json[end]) < 0x80) ++end;
      out += json.substr(i, end - i);
      i = end;
      continue;
    }
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    uint32_t point = lead & (0xffu >> (length + 1));
    for (size_t k = 1; k < length && i + k < json.size(); ++k) {
      point = (point << 6) | (static_cast<unsigned char>(json[i + k]) & 0x3f);
    }
    i += length;
    if (point < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", point);
    } else {
      point -= 0x10000;
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xd800 + (point >> 10), 0xdc00 + (point & 0x3ff));
    }
  }
}

}  // namespace tern::serve::kserve
